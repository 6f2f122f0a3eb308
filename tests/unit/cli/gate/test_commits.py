"""Which commits a line of shell would make, and where."""

from pathlib import Path

import pytest

from gsd_review_broker.cli.gate.aliases import Alias
from gsd_review_broker.cli.gate.commits import WantedCommit, commits_in
from gsd_review_broker.cli.gate.shell import UNKNOWN

HERE = Path("/here")
MESSAGE = """git commit -m "$(cat <<'EOF'
Don't say "git commit" here

It's only text: $(git commit) `git commit`
EOF
)" """


@pytest.mark.parametrize(
    "text",
    [
        "git commit",
        "git commit -m 'x y'",
        "/usr/bin/git commit",
        "git --no-pager -c user.name=x commit -m x",
        "git -c core.hooksPath=/dev/null commit --no-verify",
        "npm test && git commit -m x",
        "false || git commit; true",
        "true; (git commit -m x) 2>&1 | tail -1",
        "{ git commit -m x; }",
        "if true; then git commit -m x; fi",
        "! git commit",
        "A=1 B='2 3' git commit",
        "env -i -u X A=1 git commit",
        "command git commit",
        "timeout 10 git commit",
        "sudo -u me git commit",
        "nice -n 5 git commit",
        "bash -c 'git commit -m x'",
        "sh -lc \"git commit -m 'x'\"",
        "eval 'git commit'",
        'echo "$(git commit)"',
        "echo `git commit`",
        "x=$(git commit)",
        "git commit # a comment",
        "git \\\n  commit",
        "cat <<EOF > notes\nDon't\nEOF\ngit commit",
        "git commit >/dev/null 2>&1",
        MESSAGE,
    ],
)
def test_a_commit_is_found(text: str) -> None:
    assert commits_in(text, HERE) == [WantedCommit(folder=HERE)]


@pytest.mark.parametrize(
    "text",
    [
        "git status",
        "echo git commit",
        "git log --grep commit",
        "git commit --dry-run",
        "echo 'git commit'",
        "# git commit",
        "cat <<'EOF' > doc.md\ngit commit -m x\nEOF",
        "grep -r 'git commit' .",
        "gitk commit",
        "echo 'an open quote",
        "",
    ],
)
def test_what_is_not_a_commit_is_left_alone(text: str) -> None:
    assert commits_in(text, HERE) == []


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("git -C sub commit", "/here/sub"),
        ("git -C /there -C below commit", "/there/below"),
        ("cd /there && git commit", "/there"),
        ("cd sub; git -C more commit", "/here/sub/more"),
        ("(cd /there); git commit", "/here"),
        ("(cd /there && git commit)", "/there"),
        ("bash -c 'cd /there && git commit'", "/there"),
        ("env -C /there git commit", "/there"),
        ('cd "$X" && git commit', None),
        ("git -C $(pwd) commit", None),
        ("cd - && git commit", None),
        ("GIT_DIR=/x git commit", None),
        ("env GIT_INDEX_FILE=/x git commit", None),
        ("git --git-dir=/x commit", None),
        ("git --git-dir /x commit", None),
    ],
)
def test_the_folder_is_told_or_marked_as_unknown(text: str, folder: str | None) -> None:
    [commit] = commits_in(text, HERE)
    assert commit.folder == (None if folder is None else Path(folder))


def test_the_home_folder_is_known() -> None:
    for text in ("cd ~ && git commit", "cd && git commit", "git -C ~ commit"):
        [commit] = commits_in(text, HERE)
        assert commit.folder == Path.home()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git commit -am x", WantedCommit(folder=HERE, takes_all=True)),
        ("git commit --all --message=x", WantedCommit(folder=HERE, takes_all=True)),
        ("git commit -qam 'x' -- a b", WantedCommit(folder=HERE, takes_all=True, paths=("a", "b"))),
        ("git commit --amend --no-edit", WantedCommit(folder=HERE, amends=True)),
        ("git commit -m x a.txt", WantedCommit(folder=HERE, paths=("a.txt",))),
        ("git commit -im x a.txt", WantedCommit(folder=HERE, includes=True, paths=("a.txt",))),
        ("git commit -mx --author 'A <a@b>' --date now", WantedCommit(folder=HERE)),
        ("git commit -F - < file", WantedCommit(folder=HERE)),
        ("git commit -p -m x", WantedCommit(folder=HERE, takes_all=True)),
        ("git add -A && git commit -m x", WantedCommit(folder=HERE, added=(("-A",),))),
        ("git add a; git add b; git commit -m x", WantedCommit(folder=HERE, added=(("a",), ("b",)))),
    ],
)
def test_what_goes_into_the_commit(text: str, expected: WantedCommit) -> None:
    assert commits_in(text, HERE) == [expected]


@pytest.mark.parametrize(
    "text", ["git commit -m 'open", 'git commit -m "open', "git commit $(open", "git commit `open"]
)
def test_text_that_cannot_be_read_counts_as_a_commit(text: str) -> None:
    assert commits_in(text, HERE) == [WantedCommit(folder=HERE)]


def test_text_that_is_nested_without_end_counts_as_a_commit() -> None:
    text = "git commit"
    for _ in range(30):
        text = f"$({text})"
    assert commits_in(text, HERE) == [WantedCommit(folder=HERE)]


ALIASES = {
    "ci": "commit -v",
    "save": "!git add -A && git commit -m",
    "saved": '!f() { git add -A; git commit "$@"; }; f',
    "again": "ci --amend",
    "loop": "loop",
    "open": "commit -m 'open",
    "last": "log -1",
}
TOP = Path("/top")


def alias_of(_folder: Path, name: str) -> Alias | None:
    text = ALIASES.get(name)
    return None if text is None else Alias(text, TOP if text.startswith("!") else HERE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git ci -am x", WantedCommit(folder=HERE, takes_all=True)),
        ("git -C /there ci a.txt", WantedCommit(folder=Path("/there"), paths=("a.txt",))),
        ("git save 'two words'", WantedCommit(folder=TOP, added=(("-A",),))),
        ("git saved -m x", WantedCommit(folder=TOP, added=(("-A",),))),
        ("git again --no-edit", WantedCommit(folder=HERE, amends=True)),
        ("git -c alias.Quick='commit -a' quick -m x", WantedCommit(folder=HERE, takes_all=True)),
        ("git open", WantedCommit(folder=None, paths=(UNKNOWN,))),
        ('cd "$X" && git ci', WantedCommit(folder=None)),
    ],
)
def test_an_alias_counts_as_what_it_stands_for(text: str, expected: WantedCommit) -> None:
    assert commits_in(text, HERE, alias_of) == [expected]


@pytest.mark.parametrize("text", ["git loop", "git last", "git lfs pull", "git status", "git"])
def test_other_aliases_and_commands_are_left_alone(text: str) -> None:
    assert commits_in(text, HERE, alias_of) == []
