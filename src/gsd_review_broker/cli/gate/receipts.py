"""`tandem gate receipt`, `key` and `check --offline`: approvals that prove themselves."""

import json
from pathlib import Path

from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.gate.questions import commits_log, plain_revision, row_of
from gsd_review_broker.cli.render.escapes import visible_block
from gsd_review_broker.domain.gate.policy import GatePolicy, Mode
from gsd_review_broker.domain.gate.receipts import key_id_of, parse_public_key
from gsd_review_broker.domain.gate.request import parse_log
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.gate import alone, hook, install
from gsd_review_broker.gate.offline import NOTES, decide_offline, read_proofs
from gsd_review_broker.git.command import places
from gsd_review_broker.git.origin import root_commit
from gsd_review_broker.git.program import Answer, run_users_git
from gsd_review_broker.settings import locations
from gsd_review_broker.settings.gate import read_policy_file


def show_receipt(context: Context, review: str, *, note: str | None) -> int:
    text = str(context.post(f"/api/gate/receipts/{review}")["receipt"])
    if note is not None:
        _attach(text, note)
    if context.wants_json:
        context.screen.json(json.loads(text))
    else:
        print(text)
    return Exit.DONE


def _attach(text: str, commit: str) -> None:
    """Appended, since a squashed commit has several; the same receipt only once."""
    present = _notes("show", commit)
    if text in present.output.decode("utf-8", "replace").splitlines():
        return
    done = _notes("append", "-m", text, commit)
    if done.code != 0:
        raise BrokerError(Code.INVALID_ARGUMENT, f"git notes: {done.why}", "Name a commit of this repository.")


def _notes(*arguments: str) -> Answer:
    """The user's own git, since the note is the user's."""
    return run_users_git(Path.cwd(), "notes", f"--ref={NOTES}", *arguments)


def show_key(context: Context) -> int:
    path = locations.public_key_file()
    try:
        text = path.read_text("ascii")
    except FileNotFoundError:
        raise BrokerError(
            Code.NOT_FOUND,
            f"there is no key yet ({path})",
            "Install gsd-review-broker[receipts] and start the broker; it makes one.",
        ) from None
    if context.wants_json:
        context.screen.json({"key_id": key_id_of(parse_public_key(text)), "public_key": text})
    else:
        print(text, end="")
    return Exit.DONE


def check_offline(context: Context, revisions: list[str], *, key: str | None, policy: str | None) -> int:
    public_key = _public_key(key)
    rules = _policy(policy)
    site = install.GateSite.of(Path.cwd())
    log = commits_log(site, [plain_revision(revision) for revision in revisions])
    clean = frozenset(line.decode().removeprefix("clean=") for line in hook.clean_merges(log).splitlines())
    commits = parse_log(log, clean)
    proofs = read_proofs(site.folder, public_key, root_commit(site.folder, _newest(commits), environment=places()))
    covered = decide_offline(commits, proofs, rules)
    missing = [commit for commit in commits if commit.id not in covered]
    notes = [f"Receipts that count: {len(proofs.receipts)}.", *(f"Not counted: {why}." for why in proofs.reasons)]
    rows = [row_of(commit.id, commit.subject, covered.get(commit.id)) for commit in commits]
    message = alone.refusal(missing, rules, "\n".join(notes)) if missing else ""
    if context.wants_json:
        context.screen.json({"commits": rows, "refused": len(missing), "message": message, "reasons": proofs.reasons})
    else:
        context.screen.say(visible_block(message) if missing else f"All {len(commits)} commits have receipts.")
    return Exit.REFUSED if missing else Exit.DONE


def _newest(commits: tuple[object, ...]) -> str:
    return getattr(commits[-1], "id", "HEAD") if commits else "HEAD"


def _public_key(file: str | None) -> bytes:
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
        return GatePolicy(mode=Mode.BLOCK)
    try:
        return read_policy_file(Path(file))
    except (OSError, ValueError) as error:
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            f"the policy {file} cannot be read: {error}",
            "It is a JSON object; see docs/gate.md.",
        ) from error
