"""Clients are set up in files that others have written, and come out as if nothing had been."""

import dataclasses
import json
import os
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gsd_review_broker.cli.main import build
from gsd_review_broker.domain.words import Audience
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.integrations import files
from gsd_review_broker.integrations.clients import every_client, setup
from gsd_review_broker.integrations.clients.setup import (
    Choice,
    Client,
    Scope,
    given_endpoint,
    running_endpoint,
    tandem_program,
)
from gsd_review_broker.integrations.detection import EntryOwner, status
from gsd_review_broker.integrations.planning import Planner, carry_out
from tests.support.accounts import CLAUDE, CODEX, GEMINI, OPENCODE, URL, Account, put
from tests.support.processes import git, make_repository

pytestmark = pytest.mark.slow

OURS = "http://127.0.0.1:8321/mcp/proposer"
JSON_FILES = {
    "commented": '// mine\n{\n  /* servers */\n  "mcpServers": {\n    "z": {"command": "z"}, // last\n  },\n'
    '  "mcp": {"z": {"type": "local", "command": ["z"]}},\n  "hooks": {"SessionStart": [\n'
    '    {"hooks": [{"type": "command", "command": "date"}]} // keep\n  ], "Stop": []},\n}',
    "windows": '\ufeff{\r\n\t"b": 1,\r\n\t"a": [1,\r\n2],\r\n\t"mcpServers": {}\r\n}\r\n',
    "minified": '{"permissions":{"allow":["Bash(ls)"]},"mcp":{},"mcpServers":{"a":{"url":"x"}}}',
    "bare": "{}",
    "spacious": "\n\n  {  }  \n\n",
    "empty": "",
    "blank": "\n",
    "missing": None,
}
TOML_FILES = {
    "lived in": '# mine\nmodel = "x" # note\n[mcp_servers.z]\ncommand = "z"\n\n\n[projects."/a"]\ntrust_level = "yes"',
    "windows": '\ufeffmodel = "x"\r\n\r\n[tui]\r\ntheme = "y"\r\n',
    "empty": "",
    "blank": "\n\n",
    "missing": None,
}
CASES = [
    (client, scope, text)
    for client in every_client()
    for scope in Scope
    for text in (TOML_FILES if client is CODEX else JSON_FILES)
]


@pytest.fixture
def account(tmp_path: Path) -> Account:
    return Account.in_folder(tmp_path)


def configured(account: Account, client: Client, scope: Scope = Scope.PROJECT) -> tuple[EntryOwner, str | None]:
    places = next(found.places for found in status(account.around, versions=False) if found.client is client)
    place = next(place for place in places if place.scope is scope)
    return place.owner, place.url


@pytest.mark.parametrize(("client", "scope", "name"), CASES)
def test_each_client_is_set_up_and_taken_back_to_the_byte(
    account: Account, client: Client, scope: Scope, name: str
) -> None:
    text = (TOML_FILES if client is CODEX else JSON_FILES)[name]
    if text is not None:
        put(account.document(client, scope), text, mode=0o640)
        if client is CLAUDE:
            folder = account.root if scope is Scope.PROJECT else account.around.home
            put(folder / ".claude" / "settings.json", text, mode=0o600)
            put(folder / ".claude" / "settings.local.json", text, mode=0o600)
    before = account.seen()

    assert account.install(client, scope, trust=True).is_change
    after = account.seen()
    assert configured(account, client, scope) == (EntryOwner.OURS, OURS)
    assert not account.install(client, scope, trust=True).is_change
    assert account.seen() == after

    assert account.uninstall(client, scope).is_change
    assert account.seen() == before
    assert account.receipts() == []
    assert not account.uninstall(client, scope).is_change


def test_each_file_says_what_its_client_expects(account: Account) -> None:
    for client in every_client():
        account.install(client, trust=True)
    root = account.root

    assert json.loads((root / ".mcp.json").read_text()) == {"mcpServers": {"gsdreview": {"type": "http", "url": OURS}}}
    settings = json.loads((root / ".claude/settings.json").read_text())
    assert settings["hooks"]["SessionStart"][0]["hooks"] == [
        {"type": "command", "command": "tandem up --port 8321", "timeout": 30}
    ]
    assert json.loads((root / ".claude/settings.local.json").read_text()) == {
        "enabledMcpjsonServers": ["gsdreview"],
        "permissions": {"allow": ["mcp__gsdreview"]},
    }
    assert tomllib.loads((root / ".codex/config.toml").read_text()) == {
        "tool_output_token_limit": 50_000,
        "mcp_servers": {
            "gsdreview": {
                "url": OURS,
                "omit_tools_from": ["deferred"],
                "startup_timeout_sec": 20,
                "tool_timeout_sec": 270,
                "default_tools_approval_mode": "approve",
            }
        },
    }
    assert json.loads((root / ".codex/hooks.json").read_text())["hooks"] == settings["hooks"]
    assert json.loads((root / ".gemini/settings.json").read_text()) == {
        "mcpServers": {"gsdreview": {"httpUrl": OURS, "timeout": 270_000, "trust": True}}
    }
    assert json.loads((root / "opencode.json").read_text())["mcp"]["gsdreview"]["url"] == OURS


def test_an_account_is_set_up_in_its_own_folders(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    account.install(CLAUDE, Scope.USER)
    hook = json.loads((account.around.home / ".claude/settings.json").read_text())["hooks"]["SessionStart"][0]
    assert hook["hooks"][0]["command"].endswith("tandem up --port 8321 --user")
    assert (account.around.home / ".claude/commands/tandem/propose.md").is_file()

    elsewhere = account.around.home / "elsewhere"
    around = {
        "CLAUDE_CONFIG_DIR": elsewhere / "claude",
        "CODEX_HOME": elsewhere / "codex",
        "XDG_CONFIG_HOME": elsewhere / "xdg",
        "GEMINI_CLI_HOME": elsewhere / "gemini",
    }
    other = Account(
        type(account.around)(
            home=account.around.home,
            variables={name: str(path) for name, path in around.items()},
            root=account.root,
            state=account.around.state / "other",
        )
    )
    documents = {client: other.document(client, Scope.USER) for client in every_client()}
    assert documents == {
        CLAUDE: elsewhere / "claude/.claude.json",
        CODEX: elsewhere / "codex/config.toml",
        GEMINI: elsewhere / "gemini/.gemini/settings.json",
        OPENCODE: elsewhere / "xdg/opencode/opencode.json",
    }


def test_an_account_over_http_is_told_what_its_broker_needs(account: Account) -> None:
    (note,) = account.install(OPENCODE, Scope.USER).notes
    assert "allowed_roots" in note
    assert account.install(OPENCODE, Scope.USER, url=None).notes == ()


def test_opencodes_file_with_comments_is_the_one_that_is_edited(account: Account) -> None:
    put(account.root / "opencode.jsonc", "{ // mine\n}")
    put(account.root / "opencode.json", "{}")
    account.install(OPENCODE)
    assert "gsdreview" in (account.root / "opencode.jsonc").read_text()
    assert (account.root / "opencode.json").read_text() == "{}"


@pytest.mark.parametrize("client", every_client(), ids=str)
def test_a_foreign_entry_of_our_name_comes_back(account: Account, client: Client) -> None:
    texts = {
        CLAUDE: '{"mcpServers": {"gsdreview": {"command" : "mine"}}}',
        CODEX: '[mcp_servers.gsdreview] # mine\ncommand = "mine"\n',
        GEMINI: '{"mcpServers": {"gsdreview": {"httpUrl" : "mine"}}}',
        OPENCODE: '{"mcp": {"gsdreview": {"type" : "local"}}}',
    }
    put(account.document(client, Scope.PROJECT), texts[client])
    before = account.seen()
    assert configured(account, client)[0] is EntryOwner.FOREIGN

    account.install(client)
    account.install(client, url="http://127.0.0.1:9/mcp")
    assert configured(account, client) == (EntryOwner.OURS, "http://127.0.0.1:9/mcp")
    account.uninstall(client)

    assert account.seen() == before


def test_an_entry_that_somebody_else_wrote_the_same_is_not_ours_to_take(account: Account) -> None:
    entry = {"mcpServers": {"gsdreview": {"httpUrl": URL, "timeout": 270_000}}}
    path = put(account.root / ".gemini/settings.json", json.dumps(entry))
    before = account.seen()
    assert path not in [change.path for change in account.install(GEMINI).changes if change.is_change]
    assert configured(account, GEMINI)[0] is EntryOwner.FOREIGN
    account.uninstall(GEMINI)
    assert account.seen() == before
    (note,) = account.uninstall(GEMINI).notes
    assert note.endswith("has a gsdreview that tandem install did not write here; it is left")


def test_whoever_takes_back_in_the_wrong_place_is_told_the_right_one(account: Account) -> None:
    account.install(GEMINI, Scope.USER)
    path = account.document(GEMINI, Scope.USER)
    assert account.uninstall(GEMINI).notes == (f"{path} is ours: tandem uninstall gemini --scope user",)
    assert path.is_file()


def test_what_others_write_in_between_is_kept(account: Account) -> None:
    """Claude Code writes its own file again at every start."""
    path = put(account.document(CLAUDE, Scope.USER), '{"numStartups": 1}', mode=0o600)
    account.install(CLAUDE, Scope.USER)
    now = json.loads(path.read_text())
    now |= {"numStartups": 2, "mcpServers": {"new": {"command": "x"}, **now["mcpServers"]}}
    path.write_text(json.dumps(now, indent=2))

    assert not account.install(CLAUDE, Scope.USER).is_change
    account.uninstall(CLAUDE, Scope.USER)

    assert path.read_text() == json.dumps({"numStartups": 2, "mcpServers": {"new": {"command": "x"}}}, indent=2)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_of_ours_that_others_use_too_stays_theirs(account: Account) -> None:
    account.install(CODEX)
    path = account.document(CODEX, Scope.PROJECT)
    path.write_text(path.read_text() + '\n[tui]\ntheme = "x"\n')
    account.uninstall(CODEX)
    assert tomllib.loads(path.read_text()) == {"tui": {"theme": "x"}}


def test_an_entry_that_the_user_pointed_elsewhere_is_left_and_told(account: Account) -> None:
    account.install(GEMINI)
    path = account.document(GEMINI, Scope.PROJECT)
    path.write_text(path.read_text().replace("8321", "9999"))
    changed = path.read_bytes()

    outcome = account.uninstall(GEMINI)

    assert path.read_bytes() == changed
    assert outcome.notes == (f"{path}: the entry was changed since, and is kept",)


def test_a_linked_file_stays_a_link(account: Account) -> None:
    real = put(account.around.home / "dotfiles" / "settings.json", '{ "theme": "x" }', mode=0o640)
    link = account.document(GEMINI, Scope.USER)
    link.parent.mkdir()
    link.symlink_to(real)
    before = account.seen()

    account.install(GEMINI, Scope.USER)
    assert link.is_symlink()
    assert "gsdreview" in real.read_text()
    account.uninstall(GEMINI, Scope.USER)

    assert account.seen() == before


def test_a_link_to_nothing_gets_its_file_and_loses_it_again(account: Account) -> None:
    link = account.document(GEMINI, Scope.USER)
    link.parent.mkdir()
    link.symlink_to(account.around.home / "dotfiles" / "settings.json")
    before = account.seen()
    account.install(GEMINI, Scope.USER)
    assert configured(account, GEMINI, Scope.USER) == (EntryOwner.OURS, OURS)
    account.uninstall(GEMINI, Scope.USER)
    assert account.seen() == before


@pytest.mark.parametrize("linked", [".mcp.json", ".claude", ".claude/commands/tandem/propose.md"])
def test_a_repository_cannot_lead_us_out_of_itself(account: Account, linked: str) -> None:
    victim = account.around.home / "victim"
    if linked == ".claude":
        victim.mkdir()
    else:
        put(victim, "{}")
    link = account.root / linked
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(victim)
    before = account.seen()
    with pytest.raises(BrokerError, match="leads out of") as refusal:
        account.install()
    assert refusal.value.code is Code.CONFLICT
    assert account.seen() == before


def test_a_read_only_file_stops_it_and_nothing_is_left_behind(account: Account) -> None:
    put(account.root / ".claude/settings.json", "{}", mode=0o444)
    before = account.seen()
    with pytest.raises(BrokerError, match="is read-only"):
        account.install()
    assert account.seen() == before
    assert account.receipts() == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"a": }', "cannot be read: a value is expected at line 1, column 7"),
        (b"\xff\xfe{\x00}\x00", "is not UTF-8"),
        (b'{"mcpServers": "x"}', "mcpServers is not an object"),
        (b"[]", "must be one JSON object"),
    ],
)
def test_a_file_that_cannot_be_edited_is_refused_and_untouched(account: Account, content: bytes, why: str) -> None:
    put(account.root / ".mcp.json", content)
    before = account.seen()
    with pytest.raises(BrokerError, match=re.escape(why)) as refusal:
        account.install()
    assert refusal.value.code is Code.CONFLICT
    assert refusal.value.hint.endswith("Nothing was changed.")
    assert account.seen() == before


def test_what_is_no_file_is_refused(account: Account) -> None:
    (account.root / ".mcp.json").mkdir()
    with pytest.raises(BrokerError, match="is not a regular file"):
        account.install()
    put(account.root / ".gemini", "a file where a folder should be")
    with pytest.raises(BrokerError, match="below something that is not a folder"):
        account.install(GEMINI)
    os.mkfifo(account.root / "opencode.json")
    with pytest.raises(BrokerError, match="is not a regular file"):
        account.install(OPENCODE)


def interrupt(monkeypatch: pytest.MonkeyPatch, deed: Any, *, times: int = 1, at: int = 0) -> None:
    """Another program acts at the worst moment: after our draft, before our rename."""
    write_draft = files._write_draft
    calls = iter(range(1_000))

    def write_then_act(draft: Path, *rest: Any) -> None:
        write_draft(draft, *rest)
        if not draft.is_relative_to(draft.parents[1] / "state") and at <= next(calls) < at + times:
            deed()

    monkeypatch.setattr(files, "_write_draft", write_then_act)


def test_what_another_program_writes_meanwhile_is_not_lost(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(account.root / ".mcp.json", '{"mcpServers": {}}')
    interrupt(monkeypatch, lambda: path.write_text('{"mcpServers": {"new": {"command": "x"}}}'))
    account.install()
    assert set(json.loads(path.read_text())["mcpServers"]) == {"new", "gsdreview"}
    account.uninstall()
    assert path.read_text() == '{"mcpServers": {"new": {"command": "x"}}}'


def test_a_file_that_appears_meanwhile_is_not_overwritten(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    path = account.root / ".mcp.json"
    interrupt(monkeypatch, lambda: path.write_text('{"mcpServers": {"new": {"command": "x"}}}'))
    account.install()
    assert set(json.loads(path.read_text())["mcpServers"]) == {"new", "gsdreview"}
    account.uninstall()
    assert json.loads(path.read_text()) == {"mcpServers": {"new": {"command": "x"}}}


def test_a_program_that_never_stops_writing_is_told_of(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(account.root / ".mcp.json", "{}")
    numbers = iter(range(1_000))
    interrupt(monkeypatch, lambda: path.write_text(json.dumps({"n": next(numbers)})), times=1_000)
    with pytest.raises(BrokerError, match="keeps writing") as refusal:
        account.install()
    assert refusal.value.code is Code.BUSY
    assert set(json.loads(path.read_text())) == {"n"}
    assert not [name for name in account.seen() if name.endswith(".tmp") or "/..mcp.json" in name]


class Killed(BaseException):
    """As if the process had ended here."""


def dies(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], *, moment: int) -> bool:
    """At its n-th change of a file, unless it has fewer."""
    calls = iter(range(100))

    def deadly(change: Callable[..., None]) -> Callable[..., None]:
        def change_or_die(*arguments: Any, **named: Any) -> None:
            if next(calls) == moment:
                raise Killed
            change(*arguments, **named)

        return change_or_die

    with monkeypatch.context() as patch:
        patch.setattr(files, "write", deadly(files.write))
        patch.setattr(files, "remove", deadly(files.remove))
        try:
            act()
        except Killed:
            return True
    return False


@pytest.mark.parametrize("moment", range(9))
@pytest.mark.parametrize("older", [False, True])
def test_an_installation_that_is_killed_anywhere_can_be_taken_back(
    account: Account, monkeypatch: pytest.MonkeyPatch, moment: int, older: bool
) -> None:
    put(account.root / ".mcp.json", JSON_FILES["commented"] or "")
    put(account.root / ".claude/settings.json", JSON_FILES["windows"] or "")
    before = account.seen()
    if older:
        account.install(url="http://127.0.0.1:9/mcp", role=Audience.ALL)

    # A receipt, two documents and three texts; over an older one two texts that go, and the receipt once more.
    assert dies(monkeypatch, account.install, moment=moment) == (moment < 6)

    account.uninstall()
    assert account.seen() == before
    account.install()
    account.uninstall()
    assert account.seen() == before


@pytest.mark.parametrize("moment", range(6))
def test_taking_back_can_be_killed_anywhere_and_done_again(
    account: Account, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    put(account.root / ".mcp.json", '{"mcpServers": {"gsdreview": {"command": "foreign"}}}')
    put(account.root / ".claude/commands/tandem/status.md", "foreign")
    before = account.seen()
    account.install()

    assert dies(monkeypatch, account.uninstall, moment=moment) == (moment < 5)

    account.uninstall()
    assert account.seen() == before
    assert account.receipts() == []


@pytest.mark.parametrize("client", every_client(), ids=str)
def test_a_client_can_be_connected_by_a_program_instead(account: Account, client: Client) -> None:
    before = account.seen()
    account.install(client, url=None)
    assert configured(account, client) == (EntryOwner.OURS, "tandem mcp --role proposer")
    assert not (account.root / ".claude/settings.json").exists(), "it starts the broker by itself"
    assert not account.install(client, url=None).is_change
    account.uninstall(client)
    assert account.seen() == before


def test_from_an_address_to_a_program_and_back(account: Account) -> None:
    before = account.seen()
    account.install()
    installed = account.seen()
    account.install(url=None)
    assert not (account.root / ".claude/settings.json").exists()
    account.install()
    assert account.seen() == installed
    account.uninstall()
    assert account.seen() == before


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://127.0.0.1:9", "http://127.0.0.1:9/mcp/reviewer"),
        ("http://[::1]:9/", "http://[::1]:9/mcp/reviewer"),
        ("https://broker.example.invalid/mcp", "https://broker.example.invalid/mcp"),
        ("127.0.0.1:9", None),
        ("http://", None),
        ("http://x:0", None),
        ("http://x:99999", None),
        ('http://x/"', None),
        ("http://x/\n", None),
        ("file:///etc/passwd", None),
    ],
)
def test_an_address_is_completed_or_refused(account: Account, given: str, url: str | None) -> None:
    if url is not None:
        assert given_endpoint(given, Audience.REVIEWER, Scope.USER, account.around) == url
        return
    with pytest.raises(BrokerError, match="is not an http address"):
        given_endpoint(given, Audience.REVIEWER, Scope.USER, account.around)


def test_without_a_broker_there_is_no_address_to_write(tmp_path: Path, account: Account) -> None:
    around = dataclasses.replace(account.around, root=make_repository(tmp_path / "repository"))
    for scope in Scope:
        with pytest.raises(BrokerError, match="there is no address to write: no broker is running for") as refusal:
            running_endpoint(Audience.PROPOSER, scope, around)
        assert "Without --http" in refusal.value.hint


def test_our_program_is_named_where_the_path_leads_to_it(account: Account, tmp_path: Path) -> None:
    put(tmp_path / "bin" / "tandem", "#!/bin/sh\n", mode=0o755)
    found = dataclasses.replace(account.around, variables={"PATH": str(tmp_path / "bin")})
    hidden = dataclasses.replace(account.around, variables={"PATH": str(tmp_path)})
    assert tandem_program(found, shared=False) == "tandem"
    assert tandem_program(hidden, shared=True) == "tandem"
    assert tandem_program(hidden, shared=False) == str(Path(sys.executable).with_name("tandem"))


# What git sees.


@pytest.fixture
def versioned(tmp_path: Path) -> Account:
    """An account whose project is a repository."""
    account = Account.in_folder(tmp_path)
    make_repository(account.root)
    return account


def untracked(account: Account) -> list[str]:
    return git(account.root, "status", "--porcelain", "-uall").decode().splitlines()


@pytest.mark.parametrize("template", [b"# as git makes it\n*.log\n", b"no line end", b"", None])
def test_what_is_written_is_kept_out_of_git_and_taken_back_to_the_byte(
    versioned: Account, template: bytes | None
) -> None:
    exclude = versioned.root / ".git/info/exclude"
    if template is None:
        exclude.unlink()
    else:
        exclude.write_bytes(template)
    before = versioned.seen()

    for client in every_client():
        versioned.install(client, trust=True)
    assert untracked(versioned) == []
    if template:
        assert exclude.read_bytes().endswith(template)
    lines = exclude.read_bytes()
    for client in every_client():
        assert not versioned.install(client, trust=True).is_change
    assert exclude.read_bytes() == lines

    for client in every_client():
        versioned.uninstall(client)
        assert untracked(versioned) == []
    assert versioned.seen() == before


def test_lines_that_others_add_to_the_exclude_file_stay(versioned: Account) -> None:
    exclude = versioned.root / ".git/info/exclude"
    before = exclude.read_bytes()
    versioned.install()
    exclude.write_bytes(b"above\n" + exclude.read_bytes() + b"below\n")
    versioned.uninstall()
    assert exclude.read_bytes() == b"above\n" + before + b"below\n"


def test_shared_files_are_visible_and_personal_ones_are_not(versioned: Account) -> None:
    versioned.install(trust=True, shared=True)
    seen = untracked(versioned)
    assert "?? .mcp.json" in seen
    assert "?? .claude/settings.local.json" not in seen
    versioned.install(trust=True)
    assert untracked(versioned) == []
    versioned.install(trust=True, shared=True)
    assert untracked(versioned) == seen


def test_a_file_that_was_there_stays_as_visible_as_it_was(versioned: Account) -> None:
    put(versioned.root / ".mcp.json", "{}")
    git(versioned.root, "add", ".mcp.json")
    git(versioned.root, "commit", "-qm", "mine")
    put(versioned.root / "opencode.json", "{}")
    versioned.install()
    versioned.install(OPENCODE)
    assert untracked(versioned) == [" M .mcp.json", "?? opencode.json"]


def test_a_linked_exclude_file_is_not_written(versioned: Account) -> None:
    victim = put(versioned.around.home / "victim", "mine")
    exclude = versioned.root / ".git/info/exclude"
    exclude.unlink()
    exclude.symlink_to(victim)
    versioned.install()
    assert victim.read_text() == "mine"
    versioned.uninstall()


def test_another_role_brings_other_files_and_takes_the_old_ones(account: Account) -> None:
    before = account.seen()
    account.install(role=Audience.ALL)
    assert (account.root / ".claude/skills/tandem-reviewing/SKILL.md").is_file()

    account.install(role=Audience.PROPOSER)

    assert not (account.root / ".claude/skills/tandem-reviewing").exists()
    assert (account.root / ".claude/commands/tandem/propose.md").is_file()
    account.uninstall()
    assert account.seen() == before


def test_trust_can_be_taken_away_again(account: Account) -> None:
    account.install(trust=True)
    account.install()
    assert not (account.root / ".claude/settings.local.json").exists()
    account.install(scope=Scope.USER, trust=True)
    account.install(scope=Scope.USER)
    assert set(json.loads((account.around.home / ".claude/settings.json").read_text())) == {"hooks"}


def test_a_command_that_the_user_has_changed_stays_so(account: Account) -> None:
    account.install()
    path = account.root / ".claude/commands/tandem/propose.md"
    path.write_text("my own words")

    again = account.install()
    assert path.read_text() == "my own words"
    assert again.notes == (f"{path}: you have changed it, so it is kept",)
    account.uninstall()

    assert path.read_text() == "my own words"
    assert not (account.root / ".claude/skills").exists()


def test_a_foreign_command_of_our_name_comes_back(account: Account) -> None:
    put(account.root / ".claude/commands/tandem/propose.md", "foreign\r\n", mode=0o600)
    before = account.seen()
    account.install()
    account.install(role=Audience.ALL)
    account.uninstall()
    assert account.seen() == before


def test_an_older_text_of_ours_is_brought_up_to_date(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    before = account.seen()
    with monkeypatch.context() as patch:
        patch.setattr(setup, "_asset", lambda *name: f"older {name}")
        account.install()
    assert account.install().is_change
    assert not (account.root / ".claude/commands/tandem/propose.md").read_text().startswith("older")
    account.uninstall()
    assert account.seen() == before


def test_a_dry_run_shows_it_and_writes_nothing(account: Account) -> None:
    put(account.root / ".mcp.json", '{\n  "mcpServers": {}\n}')
    before = account.seen()

    shown = account.install(dry_run=True)

    assert account.seen() == before
    assert not account.around.state.exists()
    difference = shown.changes[0].difference()
    assert difference.startswith(f"--- {account.root}/.mcp.json\n+++ {account.root}/.mcp.json\n@@ -1,3 +1,8 @@\n {{\n")
    assert '-  "mcpServers": {}\n' in difference
    assert difference.endswith("\\ No newline at end of file\n")
    account.install()
    installed = account.seen()
    assert account.uninstall(dry_run=True).is_change
    assert account.seen() == installed


def test_a_damaged_receipt_is_named_and_nothing_is_guessed(account: Account) -> None:
    account.install()
    receipt = account.receipts()[0]
    assert receipt.stat().st_mode & 0o777 == 0o600
    receipt.write_text("{}")
    before = account.seen()
    for act in (account.install, account.uninstall):
        with pytest.raises(BrokerError, match="is damaged or of another version"):
            act()
    assert account.seen() == before


def test_projects_are_kept_apart(account: Account, tmp_path: Path) -> None:
    other_root = tmp_path / "other"
    other_root.mkdir()
    around = account.around
    other = Account(type(around)(home=around.home, variables=around.variables, root=other_root, state=around.state))
    account.install(GEMINI)
    other.install(GEMINI)
    account.uninstall(GEMINI)
    assert configured(other, GEMINI) == (EntryOwner.OURS, OURS)
    other.uninstall(GEMINI)
    assert list(other_root.iterdir()) == []


def test_outside_a_project_there_is_none_to_set_up(account: Account) -> None:
    around = account.around
    nowhere = Account(type(around)(home=around.home, variables=around.variables, root=None, state=around.state))
    with pytest.raises(BrokerError, match="not in a git repository"):
        nowhere.install()
    nowhere.install(CODEX, Scope.USER)
    assert [place.scope for place in status(nowhere.around, versions=False)[0].places] == [Scope.USER]


def test_each_role_is_told_only_of_what_its_tools_can_do() -> None:
    from gsd_review_broker.domain.words import Audience
    from gsd_review_broker.mcp.tools import REGISTRY

    every = set(REGISTRY.shown_to(Audience.ALL))
    for role, audience in ((Audience.PROPOSER, Audience.PROPOSER), (Audience.REVIEWER, Audience.REVIEWER)):
        shown = set(REGISTRY.shown_to(audience))
        for text in (*setup.commands(role, setup.claude_command), *setup.skills(role, "claude", "claude-code")):
            named = every & set(re.findall(r"[a-z_]+", text.text))
            assert named <= shown, (text.path, named - shown)


READS = {
    CLAUDE: (".claude/skills/tandem-{doing}/SKILL.md", ".claude/commands/tandem/{do}.md"),
    CODEX: (".codex/skills/tandem-{doing}/SKILL.md",),
    GEMINI: (".gemini/skills/tandem-{doing}/SKILL.md", ".gemini/commands/tandem/{do}.toml"),
    OPENCODE: (".opencode/skills/tandem-{doing}/SKILL.md", ".opencode/commands/tandem-{do}.md"),
}


@pytest.mark.parametrize("client", every_client(), ids=str)
@pytest.mark.parametrize(
    ("role", "do", "doing"),
    [(Audience.PROPOSER, "propose", "proposing"), (Audience.REVIEWER, "review", "reviewing")],
)
def test_each_client_is_told_its_role_in_its_own_form(
    account: Account, client: Client, role: Audience, do: str, doing: str
) -> None:
    before = account.seen()
    account.install(client, url=None, role=role)
    for name in READS[client]:
        text = (account.root / name.format(do=do, doing=doing)).read_text()
        assert "{" not in text.replace("{{args}}", ""), "a variable was left"
        if name.endswith(".toml"):
            assert set(tomllib.loads(text)) == {"description", "prompt"}
    skill = (account.root / READS[client][0].format(doing=doing)).read_text()
    assert skill.startswith(f"---\nname: tandem-{doing}\ndescription: ")
    assert ("Claude" in skill or "claude" in skill) == (client is CLAUDE)
    assert client.sentences[role]
    account.uninstall(client)
    assert account.seen() == before


def test_codex_keeps_the_users_own_limit_on_output(account: Account) -> None:
    path = put(account.document(CODEX, Scope.PROJECT), "tool_output_token_limit = 9\n")
    account.install(CODEX, url=None)
    assert tomllib.loads(path.read_text())["tool_output_token_limit"] == 9
    account.uninstall(CODEX)
    assert path.read_text() == "tool_output_token_limit = 9\n"


def test_an_unreadable_file_is_told_and_stops_nobody(account: Account) -> None:
    put(account.root / ".mcp.json", "{")
    found = status(account.around, versions=False)
    assert [client.client for client in found] == list(every_client())
    place = found[0].places[0]
    assert place.owner is EntryOwner.UNREADABLE
    assert "a key in double quotes is expected" in (place.problem or "")


def test_programs_are_found_and_asked_for_their_version(account: Account) -> None:
    programs = account.around.home / "bin"
    put(programs / "claude", "#!/bin/sh\necho '2.1.300 (Claude Code)'\n", mode=0o755)
    put(programs / "codex", "#!/bin/sh\necho broken; exit 1\n", mode=0o755)
    around = type(account.around)(
        home=account.around.home, variables={"PATH": str(programs)}, root=None, state=account.around.state
    )
    found = {client.client: (client.program, client.version) for client in status(around)}
    assert found == {
        CLAUDE: (programs / "claude", "2.1.300"),
        CODEX: (programs / "codex", None),
        GEMINI: (None, None),
        OPENCODE: (None, None),
    }


def test_the_guide_shows_what_is_written(account: Account) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "clients.md").read_text()
    for client in every_client():
        account.install(client, url=None)
    for name in (".mcp.json", ".codex/config.toml", ".gemini/settings.json", "opencode.json"):
        text = (account.root / name).read_text()
        assert f"```{'toml' if name.endswith('toml') else 'json'}\n{text}```\n" in guide, name


def test_the_guide_names_every_option() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "clients.md").read_text()
    _, commands = build(["install"])
    for command in ("install", "uninstall"):
        for action in commands.parsers[command]._actions:
            for option in action.option_strings:
                assert option in {"-h", "--help"} or option in guide, option


def test_plans_that_were_made_together_are_carried_out_as_they_were_shown(versioned: Account) -> None:
    put(versioned.root / ".claude/settings.json", JSON_FILES["commented"] or "")
    before = versioned.seen()
    planner = Planner(versioned.around)
    shown = [planner.install(client, Choice(url=URL, trust=True)) for client in every_client()]
    expected = {change.snapshot.real: change.after for plan in shown for change in plan.changes}
    assert versioned.seen() == before

    done = [carry_out(plan) for plan in shown]

    assert all(one is plan for one, plan in zip(done, shown, strict=True))
    assert {path: path.read_bytes() for path in expected} == expected
    planner = Planner(versioned.around)
    leaving = [planner.uninstall(client, Scope.PROJECT) for client in every_client()]
    assert [carry_out(plan) for plan in leaving] == leaving
    assert versioned.seen() == before


def test_a_plan_is_made_again_if_its_files_were_written_since(account: Account) -> None:
    path = put(account.root / ".mcp.json", '{"mcpServers": {}}')
    plan = account.install(dry_run=True)
    path.write_text('{"mcpServers": {"new": {"command": "x"}}}')

    assert carry_out(plan) != plan

    assert set(json.loads(path.read_text())["mcpServers"]) == {"new", "gsdreview"}
    account.uninstall()
    assert path.read_text() == '{"mcpServers": {"new": {"command": "x"}}}'
