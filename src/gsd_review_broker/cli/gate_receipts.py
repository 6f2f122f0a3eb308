"""`tandem gate receipt`, `key` and `check --offline`: approvals that prove themselves."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.gate_questions import passed, range_log
from gsd_review_broker.cli.screen import visible_block
from gsd_review_broker.domain.gate.decision import Because, Commit, RepositoryId
from gsd_review_broker.domain.gate.judge import judge
from gsd_review_broker.domain.gate.policy import GatePolicy, Mode, stricter
from gsd_review_broker.domain.gate.request import Asker, GateRequest, parse_log
from gsd_review_broker.domain.model import Milliseconds
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.gate import hook, install
from gsd_review_broker.gate.receipts import NOTES, Proofs, noted_receipts, parse_public_key, read_proofs
from gsd_review_broker.git.command import places
from gsd_review_broker.git.discovery import root_commit
from gsd_review_broker.git.program import Answer, run_git, run_users_git, text_of
from gsd_review_broker.settings import locations
from gsd_review_broker.settings.gate import read_policy_file

if TYPE_CHECKING:
    from gsd_review_broker.gate.receipts import PublicKey


def show_receipt(context: Context, review: str | None, *, override: str | None, note: str | None) -> int:
    if bool(review) == bool(override):
        raise BrokerError(Code.INVALID_ARGUMENT, "give either a review's ID or --override COMMIT", "See --help.")
    path, facts = _override_question(override) if override else (f"/api/gate/receipts/{review}", {})
    text = str(context.post(path, **facts)["receipt"])
    if note is not None:
        _attach(text, note)
    if context.wants_json:
        context.screen.json(json.loads(text))
    else:
        print(text)
    return Exit.DONE


def _override_question(revision: str) -> tuple[str, dict[str, str]]:
    site = install.GateSite.of(Path.cwd())
    answer = run_git(site.folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if answer.code != 0:
        raise BrokerError(Code.NOT_FOUND, f"{revision!r} is not a commit of this repository", "Name a commit.")
    return "/api/gate/receipts/override", {"folder": str(site.common), "commit": text_of(answer.output)}


def _attach(text: str, commit: str) -> None:
    """Append the receipt, once: a squashed commit has several."""
    present = _notes("show", commit)
    if text in present.output.decode("utf-8", "replace").splitlines():
        return
    done = _notes("append", "-m", text, commit)
    if done.code != 0:
        raise BrokerError(Code.INVALID_ARGUMENT, f"git notes: {done.why}", "Name a commit of this repository.")


def _notes(*arguments: str) -> Answer:
    return run_users_git(Path.cwd(), "notes", f"--ref={NOTES}", *arguments)


def show_key(context: Context) -> int:
    path = locations.public_key_file()
    try:
        text = path.read_text("ascii")
    except FileNotFoundError:
        raise BrokerError(
            Code.NOT_FOUND,
            f"there is no key yet ({path})",
            "Start the broker (`tandem up`); it makes one.",
        ) from None
    if context.wants_json:
        context.screen.json({"key_id": parse_public_key(text).id, "public_key": text})
    else:
        print(text, end="")
    return Exit.DONE


def check_offline(context: Context, revisions: list[str], *, key: str | None, policy: str | None) -> int:
    public_key = _public_key(key)
    rules = _policy(policy)
    site = install.GateSite.of(Path.cwd())
    log = range_log(site, revisions)
    clean = frozenset(line.decode().removeprefix("clean=") for line in hook.clean_merges(log).splitlines())
    commits = parse_log(log, clean)
    root = root_commit(site.folder, _newest(commits), environment=places())
    origin = RepositoryId(root=root, folder=str(site.common))
    request = GateRequest(origin=origin, asker=Asker.CHECK, root=None, branches=(), commits=commits)
    proofs = read_proofs(noted_receipts(site.folder), public_key, origin, commits, rules)
    notes = [f"Receipts that apply: {proofs.count}.", *(f"Not applied: {why}." for why in proofs.reasons)]
    answer = judge(proofs.kept, request, rules, Milliseconds(0), notes=notes)
    rows = [_row(row, proofs) for row in answer.as_json(commits)["commits"]]
    if context.wants_json:
        context.screen.json(
            {"commits": rows, "refused": len(answer.refusals), "message": answer.text, "reasons": proofs.reasons}
        )
    else:
        context.screen.block(answer.text or passed(len(commits), "a receipt", "receipts"))
        for row in rows:
            if "override" in row:
                context.screen.say(visible_block(_override_line(row)))
    return Exit.REFUSED if answer.refusals else Exit.DONE


def _row(row: dict[str, Any], proofs: Proofs) -> dict[str, Any]:
    if row.get("because") != Because.OVERRIDE:
        return row
    receipt = proofs.overrides[row["commit"]]
    return row | {"override": {"person": receipt.person, "reason": receipt.reason}}


def _override_line(row: dict[str, Any]) -> str:
    override = row["override"]
    return f"overridden by {override['person']}: {row['commit'][:12]} {row['subject']} ({override['reason']})"


def _newest(commits: tuple[Commit, ...]) -> str:
    return commits[-1].id if commits else "HEAD"


def _public_key(file: str | None) -> "PublicKey":
    if file is None:
        raise BrokerError(Code.INVALID_ARGUMENT, "--offline needs --key FILE", "`tandem gate key > FILE` prints it.")
    try:
        return parse_public_key(Path(file).read_text("ascii"))
    except (OSError, ValueError) as error:
        raise BrokerError(
            Code.INVALID_ARGUMENT, f"the key {file} cannot be read: {error}", "`tandem gate key > FILE` prints it."
        ) from error


def _policy(file: str | None) -> GatePolicy:
    if file is None:
        return stricter({"mode": Mode.BLOCK})
    try:
        return read_policy_file(Path(file))
    except (OSError, ValueError) as error:
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            f"the policy {file} cannot be read: {error}",
            "It is a JSON object; see docs/gate.md.",
        ) from error
