"""A broker that other machines can reach: by tokens, by a name that is allowed, and with TLS."""

import contextlib
import http.client
import json
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.elsewhere import ELSEWHERE, certificate, configure, free_port
from tests.support.processes import BrokerProcess, free_environment, git, make_repository
from tests.support.tandem import Tandem
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--host", "0.0.0.0"), "set auth to token"),
        (("--host", ELSEWHERE, "--auth", "off"), "set auth to token"),
    ],
)
def test_another_address_without_tokens_is_refused_at_the_start(
    repository: Path, own_home: Path, arguments: tuple[str, ...], reason: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gsd_review_broker", *arguments],
        cwd=repository, env=free_environment(own_home), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, reason in done.stderr) == (3, True)


def test_a_repository_does_not_open_the_door(repository: Path, own_home: Path) -> None:
    (repository / ".planning").mkdir()
    (repository / ".planning/review-broker.json").write_text(json.dumps({"host": "0.0.0.0"}))
    configure(own_home, auth="token")
    done = subprocess.run(
        [sys.executable, "-m", "gsd_review_broker", "--port", "0"],
        cwd=repository, env=free_environment(own_home), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "a repository must not decide" in done.stderr) == (3, True)


def test_with_tls_it_is_reached_from_elsewhere_by_the_names_that_are_allowed_and_here_as_ever(
    tmp_path: Path, own_home: Path
) -> None:
    repository = make_repository(tmp_path / "repository")
    cert, key = certificate(tmp_path)
    public = free_port()
    configure(
        own_home, host=ELSEWHERE, auth="token", tls_certificate=str(cert), tls_key=str(key),
        allowed_hosts=["reviews.example"],
    )  # fmt: skip
    tandem = Tandem(repository, own_home, SSL_CERT_FILE=str(cert))
    broker = BrokerProcess(repository, home=own_home)
    with contextlib.ExitStack() as stack:
        broker.start(port=public)
        stack.push(broker)
        made = tandem.run("token", "new", "--role", "observer", "--name", "eve")
        assert made.code == 0, made.err
        token = {"BROKER_TOKEN": made.out.strip()}
        assert tandem.run("list", **token).code == 0
        context = ssl.create_default_context(cafile=str(cert))
        answers = {}
        for host in (f"{ELSEWHERE}:{public}", "reviews.example", "evil.example"):
            connection = http.client.HTTPSConnection(ELSEWHERE, public, context=context, timeout=20)
            connection.request("GET", "/healthz", headers={"Host": host})
            answers[host] = connection.getresponse().status
            connection.close()
        assert list(answers.values()) == [200, 200, 421]
        assert tandem.run("list", "--url", f"https://{ELSEWHERE}:{public}", "--user", **token).code == 0
        assert tandem.run("list", "--url", f"http://{ELSEWHERE}:{public}", "--user", **token).code == 3


def test_a_broker_on_another_machine_is_used_from_any_clone_and_by_an_agent(tmp_path: Path, own_home: Path) -> None:
    """It serves a clone of its own: paths of the caller's machine are neither compared nor sent."""
    served = make_repository(tmp_path / "served")
    clone = make_repository(tmp_path / "clone")
    git(clone, "worktree", "add", "-q", str(tmp_path / "tree"))
    configure(own_home, host=ELSEWHERE, auth="token")
    public = free_port()
    broker = BrokerProcess(served, home=own_home)
    with contextlib.ExitStack() as stack:
        broker.start(port=public)
        stack.push(broker)
        until(lambda: f"for_others=http://{ELSEWHERE}:{public}" in broker.output())
        made = Tandem(served, own_home).run("token", "new", "--role", "proposer", "--name", "claude")
        known = {"BROKER_URL": f"http://{ELSEWHERE}:{public}", "BROKER_TOKEN": made.out.strip()}
        for folder in (clone, tmp_path / "tree"):
            (folder / "hello.txt").write_text("one\nzwei\nthree\n")
            proposed = Tandem(folder, own_home).run("propose", "-m", "Say two in German", "--json", **known)
            assert (proposed.code, proposed.json["affected_files"][0]["path"]) == (0, "hello.txt")
        reviewer = Tandem(served, own_home).run("token", "new", "--role", "reviewer", "--name", "codex").out.strip()
        review_id = proposed.json["review_id"]
        approved = Tandem(clone, own_home).run("approve", review_id, **{**known, "BROKER_TOKEN": reviewer})
        assert approved.code == 0, approved.err
        # In CI, in any clone: the approved content passes, and nothing else does.
        for content, code in (("one\nzwei\nthree\n", 0), ("one\ndrei\nthree\n", 5)):
            (clone / "hello.txt").write_text(content)
            git(clone, "commit", "-q", "-a", "-m", "Say it in German")
            checked = Tandem(clone, own_home).run("gate", "check", "HEAD~1..HEAD", **known)
            assert checked.code == code, checked.err
        call = {"name": "get_review_stats", "arguments": {}}
        stdin = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode() + b"\n"
        answered = Tandem(clone, own_home).run("mcp", stdin=stdin, **known)
        assert json.loads(answered.out)["result"]["structuredContent"]["total_reviews"] == 2


def test_a_broker_of_several_repositories_on_another_machine_is_told_which_by_its_path_there(
    tmp_path: Path, own_home: Path
) -> None:
    served = make_repository(tmp_path / "repositories/served")
    clone = make_repository(tmp_path / "clone")
    public = free_port()
    configure(own_home, host=ELSEWHERE, auth="token", allowed_roots=[str(served.parent)])
    outside = tmp_path / "outside"
    outside.mkdir()
    process = BrokerProcess(outside, home=own_home, arguments=("--user", "--db", str(outside / "db")), database="db")
    with contextlib.ExitStack() as stack:
        process.start(port=public)
        stack.push(process)
        made = Tandem(outside, own_home).run(
            "token", "new", "--role", "proposer", "--name", "claude", "--user", "--db", str(outside / "db")
        )
        member = tmp_path / "member"
        member.mkdir()
        tandem = Tandem(clone, member, BROKER_URL=f"http://{ELSEWHERE}:{public}", BROKER_TOKEN=made.out.strip())
        (clone / "hello.txt").write_text("one\nzwei\nthree\n")
        assert tandem.run("propose", "-m", "Say two in German").code == 3
        for named in (("--workspace", str(served)), ()):
            environment = {} if named else {"TANDEM_WORKSPACE": str(served)}
            proposed = tandem.run("propose", "-m", "Say two in German", *named, **environment)
            assert (proposed.code, "1 file" in proposed.out) == (0, True), proposed
        assert tandem.run("propose", "-m", "Say two in German", "--workspace", str(clone)).code == 4
