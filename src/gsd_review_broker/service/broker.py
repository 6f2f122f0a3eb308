"""The whole product behind one object: what every front end calls."""

from collections.abc import Callable
from dataclasses import dataclass

from gsd_review_broker.observe.telemetry import Meters
from gsd_review_broker.ports.world import Signer, TicketIssuer
from gsd_review_broker.service.access import Gatekeeper, Identification
from gsd_review_broker.service.applies import Applicability
from gsd_review_broker.service.approvals import ReceiptQueries
from gsd_review_broker.service.commands.claims import Claims
from gsd_review_broker.service.commands.discussion import Discussions
from gsd_review_broker.service.commands.gate import Gate, PolicyOf
from gsd_review_broker.service.commands.proposals import CounterPatches, Proposals
from gsd_review_broker.service.commands.sweep import Retention, Sweep
from gsd_review_broker.service.commands.tokens import SignInLinks, Tokens
from gsd_review_broker.service.commands.verdicts import Tickets, Verdicts
from gsd_review_broker.service.core import Core
from gsd_review_broker.service.pool_control import PoolControl
from gsd_review_broker.service.pool_records import PoolRecords
from gsd_review_broker.service.queries.inbox import Inboxes
from gsd_review_broker.service.queries.proposal import ProposalQueries
from gsd_review_broker.service.queries.review_page import ReviewPageQueries
from gsd_review_broker.service.queries.reviews import ReviewQueries
from gsd_review_broker.service.waiting import LongPoll


@dataclass(frozen=True, slots=True)
class Broker:
    proposals: Proposals
    proposal_queries: ProposalQueries
    claims: Claims
    verdicts: Verdicts
    counter_patches: CounterPatches
    discussions: Discussions
    review_queries: ReviewQueries
    retention: Retention
    meters: Meters
    sweep: Sweep
    pool: PoolControl
    gatekeeper: Gatekeeper
    identification: Identification
    tokens: Tokens
    sign_in_links: SignInLinks
    inboxes: Inboxes
    page_queries: ReviewPageQueries
    gate: Gate
    receipts: ReceiptQueries
    # The same broker for the holder of a project's token; itself without a project.
    for_project: "Callable[[str | None], Broker]"


def make_broker(
    core: Core,
    *,
    serves: str,
    database_name: str,
    meters: Meters,
    gate_policy: PolicyOf,
    ticket_office: TicketIssuer,
    signer: Signer,
    identification: Identification,
) -> Broker:
    """Compose all services of one broker."""

    def composed(core: Core) -> Broker:
        scoped: dict[str, Broker] = {}

        def for_project(project: str | None) -> Broker:
            """Made with the first call, and kept: there are as many as projects with a token."""
            if project is None or project == core.project:
                return whole
            if project not in scoped:
                scoped[project] = composed(core.for_project(project))
                pool.share(scoped[project].pool)
            return scoped[project]

        waiting = LongPoll(core.wakeups)
        pool = PoolControl(core, PoolRecords(core))
        applies = Applicability(core)
        claims = Claims(core, waiting, applies)
        whole = Broker(
            proposals=Proposals(core),
            proposal_queries=ProposalQueries(core, applies),
            claims=claims,
            verdicts=Verdicts(core, claims, Tickets(core, applies, ticket_office)),
            counter_patches=CounterPatches(core),
            discussions=Discussions(core, waiting, claims),
            review_queries=ReviewQueries(core, waiting, pool, serves=serves),
            retention=Retention(core, database_name=database_name),
            meters=meters,
            sweep=Sweep(core),
            pool=pool,
            gatekeeper=Gatekeeper(core.store, core.access, core.clock),
            identification=identification,
            tokens=Tokens(core),
            sign_in_links=SignInLinks(core),
            inboxes=Inboxes(core),
            page_queries=ReviewPageQueries(core, applies),
            gate=Gate(core, gate_policy, serves=serves),
            receipts=ReceiptQueries(core, signer),
            for_project=for_project,
        )
        return whole

    return composed(core)
