"""The hook where the team's broker runs on another machine: real git, real TLS, real tokens, and two homes."""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gsd_review_broker.gate import hook, install, remote
from tests.support.elsewhere import Member, Team, team
from tests.support.processes import BrokerProcess, git
from tests.support.waiting import until


def approved(on: Team, member: Member, content: str) -> str:
    """The member proposes; another reviewer approves."""
    (member.clone / "hello.txt").write_text(content)
    review_id = member.tandem("propose", "-m", "A change")["review_id"]
    done = on.tandem.run("approve", review_id, BROKER_TOKEN=on.token("reviewer", f"codex-{review_id[:8]}"))
    assert done.code == 0, done.err
    git(member.clone, "checkout", "-q", "--", "hello.txt")
    return review_id


def approved_here(own: BrokerProcess, member: Member, content: str) -> None:
    """By a broker of the member's own machine, which leaves a ticket where tickets count."""
    call = own.client()
    (member.clone / "hello.txt").write_text(content)
    diff = git(member.clone, "diff", "--full-index").decode()
    facts = {"agent_type": "a", "agent_role": "proposer", "phase": "1"}
    review_id = call("create_review", intent="A change", diff=diff, **facts)["review_id"]
    claim = call("claim_review", review_id=review_id, reviewer_id="codex-1")
    call("submit_verdict", review_id=review_id, verdict="approved", claim_generation=claim["claim_generation"])


def head_of(member: Member) -> str:
    return git(member.clone, "rev-parse", "HEAD").decode().strip()


def landed(on: Team, token: str) -> list[dict[str, Any]]:
    events = on.tandem("audit", "log", BROKER_TOKEN=token)["events"]
    return [event for event in events if event["event_type"] == "commit_landed"]


def test_the_teams_broker_decides_records_and_lets_a_person_override(tmp_path: Path) -> None:
    with team(tmp_path) as there:
        ada = there.member("ada")
        ada.keep_token(there.token("human", "ada"))
        observer = there.token("observer", "eve")
        installed = ada.install()
        assert (installed.code, there.url in installed.out) == (0, True)

        refused = ada.commit("one\nzwei\nthree\n")
        assert refused.code != 0
        assert "without approval: hello.txt" in refused.err
        assert "Next: tandem propose --staged" in refused.err

        # From here on no command names the broker: the repository's is recorded.
        review_id = approved(there, ada, "one\nzwei\nthree\n")
        assert (ada.commit("one\nzwei\nthree\n").code, ada.commit("one\nZwei\nthree\n").code != 0) == (0, True)
        first = until(lambda: landed(there, observer))[0]["metadata"]
        assert (first["commit"], first["reviews"]) == (head_of(ada), [review_id])

        overridden = ada.tandem.run("gate", "override", "--reason", "the site is down")
        assert overridden.code == 0, overridden.err
        assert ada.commit("one\ndrei\nthree\n").code == 0
        until(lambda: len(landed(there, observer)) == 2)
        status = ada.tandem.run("gate", "status", "--json")
        assert (status.code, status.json["asks"], status.json["mode"]) == (0, there.url, "block")
        assert [row["commit"] for row in status.json["overridden"]] == [head_of(ada)]


def test_while_the_teams_broker_is_down_nothing_on_this_machine_lets_a_commit_through(tmp_path: Path) -> None:
    with team(tmp_path) as there:
        ada = there.member("ada")
        ada.keep_token(there.token("human", "ada"))
        assert ada.install().code == 0
        approved(there, ada, "one\nzwei\nthree\n")
    # Stopped. A broker of this machine's own approves the change, and leaves a ticket if it can.
    with BrokerProcess(ada.clone, home=ada.home) as own:
        approved_here(own, ada, "one\nzwei\nthree\n")
        for environment in ({}, {"BROKER_URL": f"http://127.0.0.1:{own.port}"}):
            refused = ada.commit("one\nzwei\nthree\n", **environment)
            assert refused.code != 0, refused
            assert "could not be asked" in refused.err
            assert there.url in refused.err
            assert "Next: check that the broker is up" in refused.err
    for command in (("gate", "status"), ("gate", "check", "HEAD")):
        done = ada.tandem.run(*command)
        assert (done.code, there.url in done.err + done.out) == (3, True), done


def test_without_a_live_token_or_the_right_certificate_it_refuses_and_says_so(tmp_path: Path) -> None:
    with team(tmp_path) as there:
        ada = there.member("ada")
        ada.keep_token(there.token("human", "ada"))
        assert ada.install().code == 0
        token_file = ada.home / "config/gsd-review-broker/token"
        for environment, reason in (
            ({"BROKER_TOKEN": ""}, "this broker needs a token"),
            ({"BROKER_TOKEN": "tdm_wrong"}, "this token is unknown, has expired or was revoked"),
            ({"SSL_CERT_FILE": "/dev/null"}, "certificate"),
        ):
            refused = ada.commit("one\nzwei\nthree\n", **environment)
            assert refused.code != 0
            assert reason in refused.err
            assert "Next: " in refused.err
        token_file.chmod(0o644)
        refused = ada.commit("one\nzwei\nthree\n")
        assert (refused.code != 0, f"chmod 600 {token_file}" in refused.err) == (True, True)


def test_the_environment_names_a_broker_and_tickets_of_this_machine_do_not_count_then(tmp_path: Path) -> None:
    """Installed for a broker of this machine; whoever commits says that another one decides."""
    with team(tmp_path) as there:
        ada = there.member("ada")
        with BrokerProcess(ada.clone, home=ada.home) as own:
            assert ada.tandem.run("gate", "install", "--mode", "block").code == 0
            # A ticket counts only if it is newer than the configuration.
            os.utime(ada.clone / ".planning/review-broker.json", (1, 1))
            approved_here(own, ada, "one\nzwei\nthree\n")
            until(lambda: list((ada.clone / ".git/tandem").glob("tickets/*")))
            known = {"BROKER_URL": there.url, "BROKER_TOKEN": there.token("proposer", "claude")}
            refused = ada.commit("one\nzwei\nthree\n", **known)
            assert (refused.code != 0, "without approval: hello.txt" in refused.err) == (True, True), refused
            assert ada.commit("one\nzwei\nthree\n").code == 0


def test_a_broker_of_another_repository_is_refused_at_the_installation(tmp_path: Path) -> None:
    with team(tmp_path) as there:
        ada = there.member("ada")
        ada.keep_token(there.token("human", "ada"))
        git(ada.clone, "checkout", "-q", "--orphan", "other")
        git(ada.clone, "commit", "-q", "-m", "Another beginning")
        done = ada.install()
        assert (done.code, "this broker serves" in done.err) == (6, True), done
        assert not (ada.clone / ".git/tandem").exists()
        assert not (ada.home / "config/gsd-review-broker/brokers").exists()


def test_taking_the_gate_out_forgets_the_broker(tmp_path: Path) -> None:
    with team(tmp_path) as there:
        ada = there.member("ada")
        ada.keep_token(there.token("human", "ada"))
        assert ada.install().code == 0
        brokers = ada.home / "config/gsd-review-broker/brokers"
        assert brokers.read_text() == f"{there.url} {ada.clone}\n"
        up = ada.tandem.run("up")
        assert (up.code, f"still use the broker at {there.url}" in up.out) == (0, True), up
        assert ada.tandem.run("down").code == 0
        # Again, without an address: it stays.
        assert ada.tandem("gate", "install")["asks"] == there.url
        assert ada.tandem.run("gate", "uninstall").code == 0
        assert not brokers.exists()


def test_a_repository_that_was_moved_keeps_its_judge(tmp_path: Path) -> None:
    with team(tmp_path) as there:
        ada = there.member("ada")
        ada.keep_token(there.token("human", "ada"))
        assert ada.install().code == 0
        brokers = ada.home / "config/gsd-review-broker/brokers"
        ada.clone = ada.tandem.folder = ada.clone.rename(tmp_path / "moved")
        refused = ada.commit("one\nzwei\nthree\n")
        assert (refused.code != 0, "Next: tandem gate install" in refused.err) == (True, True), refused
        assert ada.tandem.run("gate", "install").code == 0
        assert brokers.read_text() == f"{there.url} {ada.clone}\n"
        refused = ada.commit("one\nzwei\nthree\n")
        assert (refused.code != 0, "without approval: hello.txt" in refused.err) == (True, True), refused
        # Without an address it is not this machine that judges from now on.
        brokers.unlink()
        done = ada.tandem.run("gate", "install")
        assert (done.code, "Give it with --url" in done.err) == (6, True), done
        refused = ada.commit("one\nzwei\nthree\n")
        assert (refused.code != 0, "tandem gate install --url URL" in refused.err) == (True, True), refused


class Listener:
    """Takes calls, and answers none."""

    def __init__(self, server: socket.socket) -> None:
        self.url = f"http://127.0.0.2:{server.getsockname()[1]}"
        self.heard = b""
        self.hung_up = threading.Event()
        self._server = server
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        connection, _ = self._server.accept()
        with connection:
            while piece := connection.recv(65536):
                self.heard += piece
        self.hung_up.set()


@pytest.fixture
def gated_clone(repository: Path) -> Path:
    (repository / ".planning").mkdir()
    (repository / ".planning/review-broker.json").write_text(json.dumps({"gate": {"mode": "block"}}))
    return repository


def test_a_broker_that_never_answers_is_given_up_on(gated_clone: Path, own_home: Path) -> None:
    assert remote.ANSWER_SECONDS < 5
    with socket.create_server(("127.0.0.2", 0)) as server:
        silent = Listener(server)
        site = hook.Site(
            str(gated_clone / ".git"),
            {
                "root": str(gated_clone),
                "project_file": str(gated_clone / ".planning/review-broker.json"),
                "patience": "0.2",
            },
            [],
        )
        outcome, text = remote.ask_remote(site, silent.url, "/api/gate/check", site.head("hook") + b"\n")
        assert (outcome, "does not answer within 0.2 s" in text) == ("refuse", True)


def test_a_folder_that_somebody_packed_does_not_choose_who_is_asked(
    gated_clone: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our commands take the address and the token from the user's own folder, whatever the facts say."""
    with socket.create_server(("127.0.0.2", 0)) as server:
        url = f"http://127.0.0.2:{server.getsockname()[1]}"
        theirs = gated_clone / "theirs"
        theirs.mkdir()
        for name, content in (("brokers", f"{url} {gated_clone}\n"), ("token", "tdm_theirs"), ("config.json", "{}")):
            (theirs / name).write_text(content)
            (theirs / name).chmod(0o600)
        own = gated_clone / ".git/tandem"
        own.mkdir()
        (own / "gate").write_text(f"root={gated_clone}\nelsewhere=yes\nuser_file={theirs}/config.json\nurl={url}\n")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(own_home / "config"))
        site = install.hook_site(install.GateSite.of(gated_clone))
        with pytest.raises(hook.RefusedError, match="tandem gate install --url URL"):
            _ = site.broker_url
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_the_hook_imports_nothing_more_for_a_broker_of_this_machine() -> None:
    package = str(Path(hook.__file__).parents[2])
    program = (
        f"import sys; sys.path.insert(0, {package!r}); from gsd_review_broker.gate.hook import Site; "
        "assert Site('/x', {}, []).broker_url == ''; print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True, env={}
    )
    assert not {"ssl", "socket", "json", "gsd_review_broker.client"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("written", "remembered", "outcome"),
    [
        ("block", None, "refuse"),
        ("warn", None, "warn"),
        ("off", None, "pass"),
        # Nothing is known about the broker, so the worst is assumed.
        (None, None, "refuse"),
        (None, "warn", "warn"),
        ("warn", "block", "refuse"),
        ("off", "block", "refuse"),
        ("block", "off", "refuse"),
        (None, "nonsense", "refuse"),
        (["x"], None, "refuse"),
    ],
)
def test_a_broker_that_cannot_be_asked_refuses_as_strictly_as_it_did(
    repository: Path, written: Any, remembered: str | None, outcome: str
) -> None:
    file = repository / ".planning/review-broker.json"
    file.parent.mkdir()
    file.write_text(json.dumps({} if written is None else {"gate": {"mode": written}}))
    own = repository / ".git/tandem"
    own.mkdir()
    if remembered is not None:
        (own / "mode").write_text(remembered)
    site = hook.Site(str(repository / ".git"), {"root": str(repository), "project_file": str(file)}, [])
    with socket.socket() as closed:
        closed.bind(("127.0.0.2", 0))
        url = f"http://127.0.0.2:{closed.getsockname()[1]}"
        said = remote.ask_remote(site, url, "/api/gate/check", site.head("hook") + b"\n")
    assert (said[0], "Next: " in said[1]) == (outcome, outcome != "pass")


@pytest.mark.parametrize(
    ("written", "remembered", "environment", "outcome"),
    [
        # Without a file and without an earlier answer, the gate blocks, whatever the environment says.
        (None, None, "warn", "refuse"),
        (None, None, "off", "refuse"),
        ("block", None, "off", "refuse"),
        (None, "block", "off", "refuse"),
        (None, "off", "warn", "warn"),
        ("warn", "off", "block", "refuse"),
        ("off", "off", "blok", "refuse"),
    ],
)
@pytest.mark.parametrize("has_file", [False, True], ids=["BROKER_GATE__MODE", "BROKER_CONFIG"])
def test_the_environment_makes_an_unanswered_question_stricter_and_never_looser(
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    written: str | None,
    remembered: str | None,
    environment: str,
    outcome: str,
    has_file: bool,
) -> None:
    if has_file:
        chosen = tmp_path / "chosen.json"
        chosen.write_text(json.dumps({"gate": {"mode": environment}}))
        monkeypatch.setenv("BROKER_CONFIG", str(chosen))
    else:
        monkeypatch.setenv("BROKER_GATE__MODE", environment)
    test_a_broker_that_cannot_be_asked_refuses_as_strictly_as_it_did(repository, written, remembered, outcome)


def test_a_question_to_another_machine_needs_little_more_than_tls() -> None:
    """The configuration here, which the hook reads for it, is light as well."""
    package = str(Path(hook.__file__).parents[2])
    modules = "gsd_review_broker.gate.remote, gsd_review_broker.settings.gate"
    program = f"import sys; sys.path.insert(0, {package!r}); import {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    heavy = {
        "dataclasses",
        "inspect",
        "subprocess",
        "asyncio",
        "http.client",
        "sqlite3",
        "logging",
        "email",
        "pydantic",
    }
    assert heavy & set(done.stdout.split()) == set()
