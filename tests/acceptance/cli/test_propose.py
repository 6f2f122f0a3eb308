"""`tandem propose`: a diff of what stands in the repository, which is left exactly as it was."""

import os
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from gsd_review_broker.domain.gate.records import parse_records
from gsd_review_broker.git.objects import digest_of_records
from tests.support.mcp import Mcp
from tests.support.processes import BrokerProcess, git
from tests.support.tandem import PROGRAM, Tandem, broker_of_module, put_back
from tests.support.waiting import PATIENCE

FILES = {"hello.txt": "one\ntwo\nthree\n", "bin/run.sh": "#!/bin/sh\necho hi\n", "old name.txt": "some\nlines\nhere\n"}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Generator[BrokerProcess]:
    yield from broker_of_module(tmp_path_factory, FILES)


@pytest.fixture
def repository(process: BrokerProcess) -> Path:
    return put_back(process)


@pytest.fixture
def mcp(process: BrokerProcess) -> Mcp:
    return process.client()


@pytest.fixture
def tandem(process: BrokerProcess, repository: Path) -> Tandem:
    return Tandem(process.folder, process.home)


def snapshot(repository: Path) -> dict[str, bytes]:
    """Everything but the broker's own files."""
    return {
        str(path.relative_to(repository)): path.read_bytes()
        for path in sorted(repository.rglob("*"))
        if path.is_file() and not path.is_symlink() and ".planning" not in path.parts
    }


def proposed(mcp: Mcp, created: dict[str, Any]) -> dict[str, Any]:
    return mcp("get_proposal", review_id=created["review_id"])


def landed(repository: Path, diff: str) -> None:
    """What the broker has makes of HEAD what the proposer had: git applies it, and the trees are equal."""
    git(repository, "read-tree", "HEAD")
    git(repository, "apply", "--cached", "-", stdin=diff.encode())


# Where the diff comes from.


def test_what_is_staged_is_proposed_and_nothing_else(tandem: Tandem, mcp: Mcp, repository: Path) -> None:
    (repository / "hello.txt").write_text("one\nTWO\nthree\n")
    git(repository, "add", "hello.txt")
    (repository / "hello.txt").write_text("one\nTWO\nthree\nfour\n")
    (repository / "new.txt").write_text("new\n")
    before = snapshot(repository)
    created = tandem("propose", "-m", "Shout", "--staged")
    assert snapshot(repository) == before
    proposal = proposed(mcp, created)
    assert [file["path"] for file in proposal["affected_files"]] == ["hello.txt"]
    assert "+TWO" in proposal["diff"]
    assert "four" not in proposal["diff"]
    assert (proposal["intent"], proposal["proposer_id"]) == ("Shout", "human:ada")


def test_the_work_tree_is_proposed_with_new_files_and_without_ignored_ones(
    tandem: Tandem, mcp: Mcp, repository: Path
) -> None:
    (repository / ".git" / "info" / "exclude").write_text("*.log\n")
    (repository / "hello.txt").write_text("one\nTWO\nthree\n")
    git(repository, "add", "hello.txt")
    (repository / "new.txt").write_text("new\n")
    (repository / "noise.log").write_text("noise\n")
    (repository / "old name.txt").unlink()
    before = snapshot(repository)
    created = tandem("propose", "-m", "All", "--worktree")
    assert snapshot(repository) == before
    files = {file["path"]: file["operation"] for file in created["affected_files"]}
    assert files == {"hello.txt": "modify", "new.txt": "create", "old name.txt": "delete"}


def test_from_a_folder_below_the_whole_work_tree_is_meant(process: BrokerProcess, repository: Path) -> None:
    (repository / "hello.txt").write_text("changed\n")
    below = Tandem(repository / "bin", process.home)
    assert [file["path"] for file in below("propose", "-m", "x", "--worktree")["affected_files"]] == ["hello.txt"]


def test_a_change_in_the_tick_in_which_the_index_was_written_is_proposed(tandem: Tandem, repository: Path) -> None:
    """Of the same size, with the times that the index knows: only the content differs."""
    file, index = repository / "hello.txt", repository / ".git" / "index"
    tick = index.stat().st_mtime_ns
    os.utime(file, ns=(tick, tick))
    git(repository, "config", "core.trustctime", "false")
    git(repository, "update-index", "--refresh")
    file.write_text("one\nTWO\nthree\n")
    for path in (file, index):
        os.utime(path, ns=(tick, tick))
    assert [one["path"] for one in tandem("propose", "-m", "x", "--worktree")["affected_files"]] == ["hello.txt"]


def test_commits_that_are_in_head_are_proposed_as_being_there(tandem: Tandem, mcp: Mcp, repository: Path) -> None:
    (repository / "hello.txt").write_text("one\nTWO\nthree\n")
    git(repository, "commit", "-qam", "second")
    for spelled in ("HEAD~1..HEAD", "HEAD~1", "HEAD~1...HEAD"):
        proposal = proposed(mcp, tandem("propose", "-m", "After the fact", "--range", spelled))
        assert proposal["skip_diff_validation"] is True
        assert "+TWO" in proposal["diff"]
    claim = mcp("claim_review", review_id=proposal["review_id"], reviewer_id="codex")
    assert claim["digest"] is not None


def test_commits_of_another_branch_are_proposed_as_new(tandem: Tandem, mcp: Mcp, repository: Path) -> None:
    git(repository, "switch", "-qc", "feature")
    (repository / "hello.txt").write_text("one\nTWO\nthree\n")
    git(repository, "commit", "-qam", "second")
    git(repository, "switch", "-q", "main")
    proposal = proposed(mcp, tandem("propose", "-m", "A branch", "--range", "main...feature"))
    assert proposal["skip_diff_validation"] is False
    assert mcp("claim_review", review_id=proposal["review_id"], reviewer_id="codex")["status"] == "claimed"


def test_a_file_and_standard_input_are_taken_byte_for_byte(tandem: Tandem, mcp: Mcp, tmp_path: Path) -> None:
    diff = "--- a/hello.txt\n+++ b/hello.txt\n@@ -1,1 +1,1 @@\n-one\n+un\r\n"
    file = tmp_path / "my.diff"
    file.write_bytes(diff.encode())
    for arguments, stdin in (
        (("-F", str(file)), None),
        (("-F", "-"), diff.encode()),
        ((), diff.encode()),
    ):
        assert proposed(mcp, tandem("propose", "-m", "x", *arguments, stdin=stdin))["diff"] == diff


def test_without_a_word_about_it_what_is_staged_comes_before_the_work_tree(
    tandem: Tandem, mcp: Mcp, repository: Path
) -> None:
    (repository / "hello.txt").write_text("staged\n")
    assert "+staged" in proposed(mcp, tandem("propose", "-m", "x"))["diff"]
    git(repository, "add", "-A")
    (repository / "new.txt").write_text("new\n")
    diff = proposed(mcp, tandem("propose", "-m", "x"))["diff"]
    assert "+staged" in diff
    assert "new.txt" not in diff


def test_a_pipe_that_stays_open_and_silent_is_not_waited_for(tandem: Tandem, repository: Path) -> None:
    """So it is in some agents' shells."""
    (repository / "hello.txt").write_text("changed\n")
    read, write = os.pipe()
    try:
        done = subprocess.run(
            [PROGRAM, "propose", "-m", "x"], cwd=repository, env=tandem.environment, stdin=read,
            capture_output=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
    finally:
        os.close(read)
        os.close(write)
    assert done.returncode == 0, done.stderr


def test_words_alone_are_a_proposal_too(tandem: Tandem, mcp: Mcp, tmp_path: Path) -> None:
    text = tmp_path / "plan.md"
    text.write_text("# The plan\n")
    created = tandem("propose", "-m", "A plan", "--no-diff", "--description", f"@{text}", "--category", "plan_review")
    proposal = proposed(mcp, created)
    assert (proposal["has_diff"], proposal["description"]) == (False, "# The plan\n")
    piped = tandem("propose", "-m", "A plan", "--no-diff", "--description", "@-", stdin=b"from a pipe")
    assert proposed(mcp, piped)["description"] == "from a pipe"


@pytest.mark.parametrize(
    "arguments",
    [
        (), ("--staged",), ("--worktree",), ("--range", "HEAD..HEAD"), ("--range", "nowhere..HEAD"),
        ("-F", "/nowhere/x.diff"), ("--description", "@/nowhere/x.md"), ("--staged", "--worktree"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_nothing_to_propose_is_wrong_usage(tandem: Tandem, mcp: Mcp, arguments: tuple[str, ...]) -> None:
    before = mcp("broker_status")["last_activity_at"]
    said = tandem.run("propose", "-m", "x", *arguments)
    assert said.code == 2
    assert said.err
    assert mcp("broker_status")["last_activity_at"] == before


@pytest.mark.parametrize("arguments", [(), ("-F", "-")], ids=["piped", "named"])
def test_text_that_is_no_diff_is_wrong_usage_and_is_not_sent(
    tandem: Tandem, mcp: Mcp, arguments: tuple[str, ...]
) -> None:
    before = mcp("broker_status")["last_activity_at"]
    said = tandem.run("propose", "-m", "x", *arguments, "--json", stdin=b"garbage\n")
    assert (said.code, said.error["code"]) == (2, "invalid_argument")
    assert "--description" in said.error["hint"]
    assert mcp("broker_status")["last_activity_at"] == before


def test_a_diff_that_cannot_be_read_is_not_told_as_none(tandem: Tandem, mcp: Mcp) -> None:
    said = tandem.run("propose", "-m", "x", stdin=b"diff --git a/hello.txt b/hello.txt\n@@ -1,9 +1,9 @@\n-one\n")
    assert said.code == 0, said
    assert said.out.endswith(", a diff that cannot be read\n")


def test_a_diff_that_leaves_the_tree_is_refused(tandem: Tandem) -> None:
    diff = b"--- a/../x\n+++ b/../x\n@@ -1,1 +1,1 @@\n-one\n+un\n"
    said = tandem.run("propose", "-m", "x", "-F", "-", "--json", stdin=diff)
    assert (said.code, said.error["code"]) == (5, "diff_invalid")


def test_what_is_too_large_is_told_with_the_limit(tandem: Tandem) -> None:
    diff = b"--- /dev/null\n+++ b/x\n@@ -0,0 +1,400000 @@\n" + b"+12345\n" * 400_000
    said = tandem.run("propose", "-m", "x", "-F", "-", "--json", stdin=diff)
    assert (said.code, said.error["code"]) == (2, "too_large")
    said = tandem.run("propose", "-m", "x", "-F", "-", "--json", stdin=diff * 4)
    assert (said.code, said.error["code"]) == (2, "too_large")


# What is in it.


def make_everything(repository: Path) -> None:
    """One of each kind of change that git knows."""
    (repository / "latin.txt").write_bytes(b"caf\xe9\n")
    (repository / "utf.txt").write_text("Grüße\n")
    (repository / "late nul.txt").write_bytes(b"text\n" * 4_000 + b"\0\n")
    (repository / "picture.png").write_bytes(bytes(range(256)) * 8)
    (repository / "bin" / "run.sh").chmod(0o755)
    (repository / "old name.txt").rename(repository / "new name.txt")
    (repository / "link").symlink_to("hello.txt")
    (repository / "crlf.txt").write_bytes(b"one\r\ntwo\r\n")
    (repository / "no end").write_bytes(b"no line feed")
    (repository / "empty").touch()
    (repository / 'qu"oted\t.txt').write_text("odd\n")
    Path(os.fsdecode(os.fsencode(repository) + b"/n\xe9e.txt")).write_bytes(b"n\xe9e\n")


def test_every_kind_of_file_arrives_whole(tandem: Tandem, mcp: Mcp, repository: Path) -> None:
    make_everything(repository)
    created = tandem("propose", "-m", "Everything", "--worktree")
    claim = mcp("claim_review", review_id=created["review_id"], reviewer_id="codex")
    assert claim["status"] == "claimed"
    diff = tandem.run("diff", created["review_id"], "--raw").out
    git(repository, "add", "-A")
    wanted = git(repository, "write-tree")
    landed(repository, diff)
    assert git(repository, "write-tree") == wanted
    binary = {file["path"] for file in created["affected_files"] if file["binary"]}
    assert binary >= {"latin.txt", "late nul.txt", "picture.png"}
    assert "utf.txt" not in binary


def test_a_text_that_becomes_another_encoding_travels_as_binary_in_both_directions(
    tandem: Tandem, mcp: Mcp, repository: Path
) -> None:
    (repository / "hello.txt").write_bytes(b"caf\xe9\n")
    git(repository, "commit", "-qam", "latin")
    (repository / "hello.txt").write_text("café\n")
    diff = proposed(mcp, tandem("propose", "-m", "UTF-8", "--worktree"))["diff"]
    assert "GIT binary patch" in diff


def test_neither_attributes_nor_configuration_decide_what_a_reviewer_sees(
    tandem: Tandem, mcp: Mcp, repository: Path, tmp_path: Path
) -> None:
    """A change could otherwise hide itself, or run a program."""
    canary = tmp_path / "canary"
    for key in ("diff.evil.command", "diff.evil.textconv", "diff.external"):
        git(repository, "config", key, f"touch {canary}; cat")
    for key, value in {"diff.noprefix": "true", "color.ui": "always", "diff.renames": "false"}.items():
        git(repository, "config", key, value)
    (repository / ".gitattributes").write_text("hello.txt binary\n*.sh diff=evil\n")
    (repository / "hello.txt").write_text("one\nhidden?\nthree\n")
    (repository / "bin" / "run.sh").write_text("#!/bin/sh\necho bye\n")
    diff = proposed(mcp, tandem("propose", "-m", "x", "--worktree"))["diff"]
    assert "+hidden?" in diff
    assert "--- a/hello.txt" in diff
    assert "+echo bye" in diff
    assert "\x1b" not in diff
    assert not canary.exists()


def test_a_repository_without_a_commit_can_be_proposed(tmp_path: Path, own_home: Path) -> None:
    folder = tmp_path / "fresh"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "first.txt").write_text("first\n")
    with BrokerProcess(folder, home=own_home):
        created = Tandem(folder, own_home)("propose", "-m", "Begin", "--worktree")
        assert [file["path"] for file in created["affected_files"]] == ["first.txt"]


def test_from_a_linked_worktree_it_is_checked_there(
    process: BrokerProcess, mcp: Mcp, repository: Path, tmp_path: Path
) -> None:
    git(repository, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    side = Tandem(tmp_path / "side", process.home)
    (tmp_path / "side" / "hello.txt").write_text("in side\n")
    git(tmp_path / "side", "commit", "-qam", "side")
    (tmp_path / "side" / "hello.txt").write_text("in side\nmore\n")
    proposal = proposed(mcp, side("propose", "-m", "From the side", "--worktree"))
    assert proposal["workspace"] == str(tmp_path / "side")
    assert mcp("claim_review", review_id=proposal["review_id"], reviewer_id="codex")["status"] == "claimed"


def test_inside_a_hook_the_index_that_git_names_is_meant(tandem: Tandem, mcp: Mcp, repository: Path) -> None:
    """`git commit -a` has one of its own while its hooks run."""
    (repository / "hello.txt").write_text("changed\n")
    index = repository / ".git" / "next-index"
    environment = {**os.environ, "GIT_INDEX_FILE": str(index)}
    subprocess.run(["git", "read-tree", "HEAD"], cwd=repository, env=environment, check=True)
    subprocess.run(["git", "add", "-A"], cwd=repository, env=environment, check=True)
    created = tandem("propose", "-m", "x", "--staged", GIT_INDEX_FILE=str(index))
    assert [file["path"] for file in created["affected_files"]] == ["hello.txt"]


def test_what_is_unmerged_is_not_proposed(tandem: Tandem, repository: Path) -> None:
    git(repository, "switch", "-qc", "side")
    (repository / "hello.txt").write_text("side\n")
    git(repository, "commit", "-qam", "side")
    git(repository, "switch", "-q", "main")
    (repository / "hello.txt").write_text("main\n")
    git(repository, "commit", "-qam", "main")
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "merge", "side")
    said = tandem.run("propose", "-m", "x", "--staged")
    assert said.code == 2
    assert "unmerged" in said.err


# Where git converts files, the repository's side of it is what is proposed.

CONVERSIONS = {
    "autocrlf": ("hello.txt", "", {"core.autocrlf": "true"}, b"one\r\nTWO\r\nthree\r\n", b"one\nTWO\nthree\n"),
    "eol": ("hello.txt", "* text=auto eol=crlf\n", {}, b"one\r\nTWO\r\nthree\r\n", b"one\nTWO\nthree\n"),
    "filter": ("key.sec", "*.sec filter=enc\n", {"filter.enc.clean": "tr a-z n-za-m"}, b"plaintext\n", b"cynvagrkg\n"),
}  # fmt: skip


@pytest.mark.parametrize("source", ["--staged", "--worktree"])
@pytest.mark.parametrize("conversion", CONVERSIONS)
def test_what_git_converts_is_proposed_as_it_would_be_committed(
    tandem: Tandem, mcp: Mcp, repository: Path, conversion: str, source: str
) -> None:
    name, attributes, settings, content, blob = CONVERSIONS[conversion]
    for key, value in settings.items():
        git(repository, "config", key, value)
    (repository / ".gitattributes").write_text(attributes)
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "attributes")
    (repository / name).write_bytes(content)
    # Older than the index: then git takes the file for unchanged since, without reading it.
    os.utime(repository / name, (1_700_000_000, 1_700_000_000))
    git(repository, "add", name)
    created = tandem("propose", "-m", "x", source)
    diff = proposed(mcp, created)["diff"]
    assert ("plaintext" in diff, "\r" in diff) == (False, False)
    digest = mcp("claim_review", review_id=created["review_id"], reviewer_id="codex")["digest"]
    mcp("submit_verdict", review_id=created["review_id"], verdict="approved", reviewer_id="codex")
    git(repository, "commit", "-qm", "as proposed")
    assert git(repository, "cat-file", "blob", f"HEAD:{name}") == blob
    raw = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--full-index", "HEAD~1", "HEAD")
    assert digest == digest_of_records(parse_records(git(repository, *raw)))


# Who, and what for.


def test_an_agent_says_who_it_is_by_flags_or_environment(tandem: Tandem, mcp: Mcp) -> None:
    names = {"agent_type": "gsd-executor", "phase": "3", "plan": "03-02", "task": "4", "category": "code_change",
             "project": "p", "proposer_id": "executor-7"}  # fmt: skip
    flags = [word for key, value in names.items() for word in (f"--{key.replace('_', '-')}", value)]
    variables = {f"TANDEM_{key.upper()}": value for key, value in names.items()}
    by_flag = proposed(mcp, tandem("propose", "-m", "x", "--no-diff", *flags))
    by_environment = proposed(mcp, tandem("propose", "-m", "x", "--no-diff", **variables))
    for proposal in (by_flag, by_environment):
        assert {key: proposal[key] for key in names} == names
    over = tandem("propose", "-m", "x", "--no-diff", "--phase", "9", **variables)
    assert proposed(mcp, over)["phase"] == "9"


def test_an_agent_without_an_id_of_its_own_is_its_kind(tandem: Tandem, mcp: Mcp) -> None:
    proposal = proposed(mcp, tandem("propose", "-m", "x", "--no-diff", "--agent-type", "gsd-planner"))
    assert (proposal["agent_type"], proposal["proposer_id"], proposal["priority"]) == ("gsd-planner", None, "critical")


def test_a_revision_is_the_whole_new_content(tandem: Tandem, mcp: Mcp, repository: Path) -> None:
    (repository / "hello.txt").write_text("first try\n")
    review_id = tandem("propose", "-m", "Try", "--worktree")["review_id"]
    said = tandem.run("propose", "-m", "Try again", "--worktree", "--review", review_id, "--json")
    assert (said.code, said.error["code"]) == (6, "invalid_transition")
    tandem("request-changes", review_id, "-m", "No.", "--as", "codex")
    (repository / "hello.txt").write_text("second try\n")
    again = tandem("propose", "-m", "Try again", "--worktree", "--review", review_id[:8])
    assert (again["review_id"], again["revision"], again["round"]) == (review_id, 2, 2)


def test_the_same_call_with_the_same_key_is_done_once(tandem: Tandem, mcp: Mcp) -> None:
    first = tandem("propose", "-m", "x", "--no-diff", "--idempotency-key", "k")
    assert tandem("propose", "-m", "x", "--no-diff", "--idempotency-key", "k") == first
    said = tandem.run("propose", "-m", "y", "--no-diff", "--idempotency-key", "k", "--json")
    assert (said.code, said.error["code"]) == (6, "conflict")


def test_a_proposal_is_one_line_that_begins_with_its_id(tandem: Tandem, repository: Path) -> None:
    (repository / "hello.txt").write_text("changed\n")
    said = tandem.run("propose", "-m", "x", "--worktree")
    review_id, _, rest = said.out.partition(" ")
    assert (said.code, len(review_id), rest) == (0, 16, "pending, revision 1, 1 file\n")


def test_outside_a_repository_the_users_broker_takes_it_with_the_project_named(
    tmp_path: Path, own_home: Path, repository: Path
) -> None:
    config = own_home / "config" / "gsd-review-broker" / "config.json"
    config.parent.mkdir(parents=True)
    config.write_text(f'{{"allowed_roots": ["{repository.parent}"]}}')
    database = own_home / "data" / "gsd-review-broker" / "codex_review_broker.sqlite3"
    (repository / "hello.txt").write_text("changed\n")
    with BrokerProcess(tmp_path, home=own_home, arguments=("--user",), database=str(database)) as users:
        created = Tandem(repository, own_home)("propose", "-m", "x", "--worktree", "--user")
        proposal = proposed(users.client(), created)
        assert proposal["project"].startswith("commit-")
        assert proposal["workspace"] == str(repository)


# What `tandem install` wrote is not part of the change.


def test_what_install_wrote_is_not_proposed(tandem: Tandem, repository: Path) -> None:
    tandem("install", "claude", "codex", "gemini", "opencode", "--trust")
    (repository / "hello.txt").write_text("one\nTWO\nthree\n")
    # Whatever became of the exclude file.
    (repository / ".git" / "info" / "exclude").write_text("")
    assert [file["path"] for file in tandem("propose", "-m", "x")["affected_files"]] == ["hello.txt"]
    tandem("uninstall", "claude", "codex", "gemini", "opencode")


def test_only_the_others_part_of_a_file_is_proposed(tandem: Tandem, mcp: Mcp, repository: Path) -> None:
    path = repository / ".mcp.json"
    path.write_text('{\n  "mcpServers": {\n    "a": {"command": "a"}\n  }\n}\n')
    git(repository, "add", ".mcp.json")
    git(repository, "commit", "-qm", "servers")
    tandem("install", "claude")
    refused = tandem.run("propose", "-m", "x")
    assert (refused.code, "there is no change" in refused.err) == (2, True)

    path.write_text(path.read_text().replace('"command": "a"', '"command": "b"'))
    diff = proposed(mcp, tandem("propose", "-m", "x"))["diff"]

    assert '+    "a": {"command": "b"}' in diff
    assert "gsdreview" not in diff
    landed(repository, diff)
    tandem("uninstall", "claude")


def test_what_is_to_be_shared_is_proposed(tandem: Tandem) -> None:
    tandem("install", "gemini", "--shared")
    assert ".gemini/settings.json" in [file["path"] for file in tandem("propose", "-m", "x")["affected_files"]]
    tandem("uninstall", "gemini")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--path", "no such file"), "--path no such file: there is no such file\nName a file"),
        (("--range", "nowhere..HEAD"), "git does not know a commit 'nowhere'\nGive a range"),
        (("--no-diff", "--description", "@nowhere"), "--description @nowhere: No such file or directory\nGive a file"),
    ],
)
def test_a_name_that_does_not_exist_is_told_in_our_words(tandem: Tandem, words: tuple[str, ...], told: str) -> None:
    said = tandem.run("propose", "-m", "x", *words)
    assert (said.code, said.err.startswith(f"tandem: invalid_argument: {told}")) == (2, True), said
