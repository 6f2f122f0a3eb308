"""The whole product behind one object: what every front end calls."""

from dataclasses import dataclass

from gsd_review_broker.meters import Meters
from gsd_review_broker.service.access import Gatekeeper
from gsd_review_broker.service.claims import Claims
from gsd_review_broker.service.core import Core
from gsd_review_broker.service.counter_patches import CounterPatches
from gsd_review_broker.service.discussion import Discussions
from gsd_review_broker.service.inbox import Inboxes
from gsd_review_broker.service.insight import Insight
from gsd_review_broker.service.pages import Pages
from gsd_review_broker.service.proposals import Proposals
from gsd_review_broker.service.reading import ReadingProposals
from gsd_review_broker.service.retention import Retention
from gsd_review_broker.service.reviewer_records import ReviewerRecords
from gsd_review_broker.service.reviewers import Reviewers
from gsd_review_broker.service.statistics import Statistics
from gsd_review_broker.service.sweep import Sweep
from gsd_review_broker.service.waiting import Waiting


@dataclass(frozen=True, slots=True)
class Broker:
    proposals: Proposals
    reading: ReadingProposals
    claims: Claims
    counter_patches: CounterPatches
    discussions: Discussions
    insight: Insight
    statistics: Statistics
    retention: Retention
    meters: Meters
    sweep: Sweep
    reviewers: Reviewers
    gatekeeper: Gatekeeper
    inboxes: Inboxes
    pages: Pages


def make_broker(core: Core, *, serves: str, database_name: str, meters: Meters) -> Broker:
    waiting = Waiting(core.wakeups)
    reviewers = Reviewers(core, ReviewerRecords(core))
    return Broker(
        proposals=Proposals(core),
        reading=ReadingProposals(core),
        claims=Claims(core, waiting),
        counter_patches=CounterPatches(core),
        discussions=Discussions(core, waiting),
        insight=Insight(core, waiting, reviewers, serves=serves),
        statistics=Statistics(core),
        retention=Retention(core, database_name=database_name),
        meters=meters,
        sweep=Sweep(core),
        reviewers=reviewers,
        gatekeeper=Gatekeeper(core.store, core.access, core.clock),
        inboxes=Inboxes(core),
        pages=Pages(core),
    )
