"""Putting the hook in place, and taking it away so that everything is as it was, byte for byte.

A hook that is there already is kept and called first. Where `core.hooksPath` names a folder (husky, or a user's own),
it is replaced by a folder of ours in the git folder, in which every hook calls the one of the same name there."""

import base64
import json
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gsd_review_broker
from gsd_review_broker.domain.gate.policy import GatePolicy
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.files import write_private
from gsd_review_broker.gate.hook import Site
from gsd_review_broker.gate.receipts import TICKET_DIFF, remove_tickets
from gsd_review_broker.git.command import FIXED_ENVIRONMENT, FOREIGN_VARIABLES, command_line
from gsd_review_broker.git.discovery import find_root, git_folder, root_commit
from gsd_review_broker.git.program import Answer, run_git, run_users_git_config, text_of
from gsd_review_broker.settings import locations
from gsd_review_broker.settings.gate import CONFIG_VARIABLE, read_policy
from gsd_review_broker.settings.locations import record_url, recorded_url
from gsd_review_broker.settings.state_files import Database

_HOOK = "reference-transaction"
_EXECUTABLE = 0o755
# All hooks that git runs on a client or a server; an unknown one of a later git is not called through our folder.
_NAMES = (
    "applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg",
    "commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge", "pre-push", "pre-receive", "update",
    "proc-receive", "post-receive", "post-update", "push-to-checkout", "pre-auto-gc", "post-rewrite",
    "sendemail-validate", "fsmonitor-watchman", "p4-changelist", "p4-prepare-changelist", "p4-post-changelist",
    "p4-pre-submit", "post-index-change",
)  # fmt: skip
MARK = "# tandem gate: only approved content lands on guarded branches. `tandem gate uninstall` removes this hook."
CHAINED = "reference-transaction.before-tandem"
_SUM = ("hash-object", "--no-filters", "--stdin")

# What a ticket does not know of, since it was made for the broker's own policy.
_DEMANDS = (CONFIG_VARIABLE, "BROKER_GATE__EXEMPT_PATHS", "BROKER_GATE__HUMAN_PATHS", "BROKER_GATE__PLAN_FIRST")
_TEMPLATE = """\
#!/bin/sh
{mark}
# Only `prepared` decides; it never waits. Everything but branches passes without starting a program.
python={python}
place="${{0%/*}}"/{place}
chained={chained}
lines='' branches=0
while IFS= read -r line; do
  lines="$lines$line
"
  old=${{line%% *}}
  case $line in
  "$old $old "*) ;;
  *' refs/heads/'*) branches=$((branches + 1)) update=$line ;;
  esac
done
if [ -x "$chained" ]; then
  printf '%s' "$lines" | "$chained" "$@" || exit $?
fi
[ "$branches" -gt 0 ] || exit 0
old=${{update%% *}} new=${{update#* }}
new=${{new%% *}}
note="$place/prepared.$PPID.$new"
program={program}
# The broker leaves a ticket for a commit that it would let through: named after the branch's value before it, and
# after the sum over its parents and its records. A ticket older than the configuration does not apply.
# Tickets are a broker's of this machine; where one on another machine decides, they do not apply. Nor do they where the
# environment demands what the broker did not know.
tickets={tickets}
has_ticket() {{
  [ "$branches" -eq 1 ] && [ "$tickets${{BROKER_URL-}}{demands}" = count ] || return 1
  set -- "$place/tickets/$old".*
  [ -f "$1" ] || return 1
  ticket="$place/tickets/$old.$(sum_of_commit)"
  [ -f "$ticket" ] || return 1
  for file in {configuration}; do
    [ ! -e "$file" ] || [ "$ticket" -nt "$file" ] || return 1
  done
}}
sum_of_commit() {{
  unset {foreign}
  export {environment}
  {diff} "$new" -- | {sum}
}}
case $1 in
prepared)
  if [ ! -x "$python" ]; then
    echo "tandem gate: refused, because $python is gone. Install gsd-review-broker again, or remove $0." >&2
    exit 1
  fi
  if has_ticket && printf 'ticket %s\n%s\n' "${{ticket##*/}}" "$update" >"$note"; then
    exit 0
  fi
  printf '%s' "$lines" | "$python" -I -S -c "$program" prepared "$note" || exit 1
  ;;
committed)
  if [ -f "$note" ]; then
    # With `exec`, so that no shell stays and holds the output that a caller of git reads to its end.
    (exec "$python" -I -S -c "$program" landed "$note" </dev/null >/dev/null 2>&1) &
  fi
  ;;
aborted)
  [ ! -e "$note" ] || rm -f "$note"
  ;;
esac
exit 0
"""
_PROGRAM = (
    "import sys; sys.path.insert(0, {package!r}); "
    "from gsd_review_broker.gate.hook import main; sys.exit(main(sys.argv[1:]))"
)
# A hook of another set-up, called from our folder in its place.
_PASSING_ON = """\
#!/bin/sh
{mark}
hook={folder}/{name}
[ -x "$hook" ] || exit 0
exec "$hook" "$@"
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class GateSite:
    """A repository in which the gate is, or may be, installed."""

    folder: Path
    common: Path
    root: Path | None

    @classmethod
    def of(cls, folder: Path) -> "GateSite":
        common = git_folder(folder)
        if common is None:
            raise BrokerError(Code.NOT_FOUND, f"{folder} is not inside a git repository", "Go to the repository.")
        return cls(folder=folder, common=Path(common), root=find_root(folder))

    @property
    def own(self) -> Path:
        return self.common / "tandem"

    @property
    def facts_file(self) -> Path:
        return self.own / "gate"

    @property
    def receipt_file(self) -> Path:
        return self.own / "installed.json"

    @property
    def config_file(self) -> Path:
        return self.common / "config"

    @property
    def name(self) -> str:
        """Name the repository as the user's list of brokers on other machines does."""
        return str(self.root or self.common)


def hooks_path(site: GateSite) -> str | None:
    """Read what the user's own git would use; None for the git folder's own hooks."""
    return _setting(site, "--type=path")


def hook_file(site: GateSite) -> Path:
    """Find where git looks for the hook now."""
    named = hooks_path(site)
    if named is None:
        return site.common / "hooks" / _HOOK
    base = site.root or site.common
    return base / named / _HOOK


def state(site: GateSite) -> str:
    """ok, absent, or damaged: there are traces of us, but git would not run our hook as it should be."""
    file = hook_file(site)
    try:
        content = file.read_text("utf-8", "surrogateescape")
    except OSError:
        return "damaged" if site.receipt_file.exists() else "absent"
    if MARK not in content:
        return "damaged" if site.receipt_file.exists() else "absent"
    whole = content == _script(site) and os.access(file, os.X_OK) and site.facts_file.exists()
    return "ok" if whole else "damaged"


def install(site: GateSite, *, database: Database, user_database: Database, url: str | None = None) -> bool:
    """False if it is in place already; then only the facts are brought up to date. `url` is that of a broker on another
    machine; without it, the one that was recorded stays."""
    url = url or _address_before(site)
    present = state(site)
    tips = _tips(site) if present == "absent" or not site.facts_file.exists() else known_tips(site)
    if present == "damaged":
        uninstall(site)
    # Tickets that came with the folder do not apply.
    remove_tickets(list((site.own / "tickets").glob("*")) if present != "ok" else [])
    site.own.mkdir(mode=0o700, exist_ok=True)
    if url is not None:
        record_url(site.name, url)
    _write(site.facts_file, _facts(site, database, user_database, tips), 0o600)
    if present == "ok":
        if state(site) != "ok":
            # The script says whether tickets count.
            _write(hook_file(site), _script(site), _EXECUTABLE)
        return False
    named = hooks_path(site)
    if named is None:
        _install_beside(site)
    else:
        _install_in_front(site, named)
    return True


def _address_before(site: GateSite) -> str | None:
    """Find the address of the broker on another machine that has judged here, also if the repository was moved since.
    Installing the gate again does not change the judge."""
    before = Site.of(str(site.common)).known if site.facts_file.exists() else {}
    url = recorded_url(site.name)
    if url is not None or not before.get("elsewhere"):
        return url
    old = before.get("root") or str(site.common)
    url = recorded_url(old)
    if url is None:
        raise BrokerError(
            Code.CONFLICT,
            "commits here are judged by a broker on another machine, and its address is not known any more",
            "Give it with --url; or run `tandem gate uninstall` first, if a broker of this machine shall judge.",
        )
    if not Path(old).exists():
        record_url(old, None)
    return url


def _install_beside(site: GateSite) -> None:
    """Install in the git folder's own hooks; a hook that is there already is called first."""
    hooks = site.common / "hooks"
    hooks.mkdir(exist_ok=True)
    file, kept = hooks / _HOOK, hooks / CHAINED
    if kept.exists():
        raise BrokerError(
            Code.CONFLICT,
            f"{kept} is there already, and the gate would keep the present hook under this name",
            "Move it away, then run `tandem gate install` again.",
        )
    had = file.exists() or file.is_symlink()
    _write(site.receipt_file, json.dumps({"kind": "beside", "had_hook": had}), 0o600)
    if had:
        file.rename(kept)
    _write(file, _script(site), _EXECUTABLE)


def _install_in_front(site: GateSite, named: str) -> None:
    """Put a folder in the place of `core.hooksPath`, with a hook for each that the other folder may have."""
    before = site.config_file.read_bytes()
    hooks = site.own / "hooks"
    hooks.mkdir(mode=0o700, exist_ok=True)
    for name in _NAMES:
        _write(hooks / name, _pass_on_script(folder=named, name=name), _EXECUTABLE)
    receipt: dict[str, Any] = {
        "kind": "in front",
        "hooks_path": named,
        "local": _setting(site, "--local"),
        "config": base64.b64encode(before).decode(),
    }
    _write(site.receipt_file, json.dumps(receipt), 0o600)
    _write(hooks / _HOOK, _script(site), _EXECUTABLE)
    _configure(site, "core.hooksPath", str(hooks))
    receipt["config_after"] = base64.b64encode(site.config_file.read_bytes()).decode()
    _write(site.receipt_file, json.dumps(receipt), 0o600)


def uninstall(site: GateSite) -> bool:
    """False if there is nothing to take away."""
    try:
        receipt = json.loads(site.receipt_file.read_text())
    except FileNotFoundError:
        return False
    if receipt["kind"] == "beside":
        _restore_beside(site, had_hook=receipt["had_hook"])
    else:
        _restore_config(site, receipt)
        for file in (site.own / "hooks").glob("*"):
            file.unlink()
        (site.own / "hooks").rmdir()
    tickets = site.own / "tickets"
    remove_tickets(list(tickets.glob("*")))
    if tickets.exists():
        tickets.rmdir()
    for file in site.own.glob("*"):
        file.unlink()
    site.own.rmdir()
    record_url(site.name, None)
    return True


def _restore_beside(site: GateSite, *, had_hook: bool) -> None:
    file, kept = site.common / "hooks" / _HOOK, site.common / "hooks" / CHAINED
    ours = file.exists() and MARK in file.read_text("utf-8", "surrogateescape")
    if ours:
        file.unlink()
    # A hook that another program put there since is left alone, and so is the one that we kept.
    if had_hook and not file.exists():
        kept.rename(file)


def _restore_config(site: GateSite, receipt: dict[str, Any]) -> None:
    after = base64.b64decode(receipt.get("config_after", ""))
    if site.config_file.read_bytes() == after:
        site.config_file.write_bytes(base64.b64decode(receipt["config"]))
        return
    if _setting(site, "--local") != str(site.own / "hooks"):
        return
    if receipt["local"] is None:
        _configure(site, "--unset", "core.hooksPath")
    else:
        _configure(site, "core.hooksPath", receipt["local"])


def _script(site: GateSite) -> str:
    package = str(Path(gsd_review_broker.__file__).resolve().parent.parent)
    """Write the hook. `place` is our folder; `chained` is shell text for the path of the hook that was there before."""
    place, chained = "../tandem", f'"${{0%/*}}"/{CHAINED}'
    if hook_file(site).parent == site.own / "hooks" or _receipt_kind(site) == "in front":
        named = json.loads(site.receipt_file.read_text())["hooks_path"]
        place, chained = "..", _pass_on_script(folder=named, name=_HOOK).splitlines()[2].removeprefix("hook=")
    known = hook_site(site).known
    # A ticket must be newer than these.
    configuration = [known[key] for key in ("project_file", "user_file") if known.get(key)]
    return _TEMPLATE.format(
        mark=MARK,
        python=shlex.quote(sys.executable),
        place=place,
        chained=chained,
        program=shlex.quote(_PROGRAM.format(package=package)),
        configuration=shlex.join(configuration),
        tickets="none" if known.get("elsewhere") else "count",
        foreign=" ".join(FOREIGN_VARIABLES),
        demands="".join(f"${{{name}-}}" for name in _DEMANDS),
        environment=" ".join(f"{name}={shlex.quote(value)}" for name, value in FIXED_ENVIRONMENT.items()),
        diff=shlex.join(command_line(TICKET_DIFF)),
        sum=shlex.join(command_line(_SUM)),
    )


def _receipt_kind(site: GateSite) -> str | None:
    try:
        return json.loads(site.receipt_file.read_text())["kind"]
    except (OSError, ValueError, KeyError):
        return None


def policy_of(site: GateSite) -> GatePolicy:
    project = locations.project_file(site.root) if site.root else None
    return read_policy(project, locations.user_file(), installation=site.own)


def hook_site(site: GateSite) -> Site:
    """Read what the hook knows of this repository; or would know, where it is not installed."""
    if site.facts_file.exists():
        known = Site.of(str(site.common))
        # A folder that another user packed must not choose whose addresses and token are read.
        known.known["user_file"] = str(locations.user_file())
        return known
    place = locations.locate(site.root, db=None, config=None)
    user = locations.locate(None, db=None, config=None, environment={})
    return Site(str(site.common), _known(site, place.database, user.database), [])


def _known(site: GateSite, database: Database, user_database: Database) -> dict[str, str]:
    return {
        "root": str(site.root or ""),
        "commit": root_commit(site.folder) or "",
        "database": str(database.path),
        "user_database": str(user_database),
        "project_file": str(locations.project_file(site.root)) if site.root else "",
        "user_file": str(locations.user_file()),
        "public_key": str(locations.public_key_file()),
        "elsewhere": "yes" if recorded_url(site.name) else "",
    }


def _facts(site: GateSite, database: Database, user_database: Database, tips: list[str]) -> str:
    values = _known(site, database, user_database)
    lines = [f"{key}={value}" for key, value in values.items()] + [f"tip={tip}" for tip in tips]
    if any("\n" in line for line in lines):
        raise BrokerError(Code.CONFLICT, "a path of this repository has a line feed in it", "Move the repository.")
    return "\n".join(lines) + "\n"


def _tips(site: GateSite) -> list[str]:
    """List what the branches hold now: that is history, and the gate judges what comes after."""
    answer = run_git(site.folder, "for-each-ref", "--format=%(objectname)", "refs/heads")
    return sorted(set(_good(answer).decode("ascii").split()))


def known_tips(site: GateSite) -> list[str]:
    return Site.of(str(site.common)).tips


def _write(path: Path, text: str, mode: int) -> None:
    write_private(path, text.encode("utf-8", "surrogateescape"), mode=mode)


def _setting(site: GateSite, *options: str) -> str | None:
    """`core.hooksPath`; None where it is not set."""
    answer = run_users_git_config(site.folder, *options, "--get", "core.hooksPath")
    return text_of(answer.output) if answer.code == 0 else None


def _configure(site: GateSite, *arguments: str) -> None:
    _good(run_users_git_config(site.folder, "--local", *arguments))


def _good(answer: Answer) -> bytes:
    if answer.code != 0:
        raise BrokerError(Code.UNAVAILABLE, f"git failed: {answer.why}", "Look at the repository.")
    return answer.output


def _pass_on_script(*, folder: str, name: str) -> str:
    return _PASSING_ON.format(mark=MARK, folder=shlex.quote(folder), name=name)
