"""Objects that were overwritten in place do not leave the machine: docs/security.md rests on that."""

import subprocess
import zlib
from pathlib import Path

import pytest

from tests.support.processes import git, make_repository


@pytest.mark.parametrize("spelled", ["HEAD", "HEAD^{tree}", "HEAD:hello.txt"])
def test_git_hashes_what_is_pushed(tmp_path: Path, spelled: str) -> None:
    """The gate compares names. Where an object has other content than its name says, a push of it is refused."""
    repository, remote = make_repository(tmp_path / "repository"), tmp_path / "remote.git"
    subprocess.run(["git", "init", "-q", "--bare", str(remote)], check=True)
    git(repository, "push", "-q", str(remote), "HEAD:main")
    (repository / "hello.txt").write_text("approved\n")
    git(repository, "commit", "-qam", "approved")
    name = git(repository, "rev-parse", spelled).decode().strip()
    kind = git(repository, "cat-file", "-t", name).decode().strip()
    content = git(repository, "cat-file", kind, name)
    changed = {"blob": b"other\n", "tree": content.replace(b"hello.txt", b"jello.txt"), "commit": content + b"x"}
    path = repository / ".git" / "objects" / name[:2] / name[2:]
    path.chmod(0o644)
    path.write_bytes(zlib.compress(b"%b %d\0%b" % (kind.encode(), len(changed[kind]), changed[kind])))
    pushed = subprocess.run(
        ["git", "push", "-q", str(remote), "HEAD:main"], cwd=repository, capture_output=True, check=False
    )
    assert pushed.returncode != 0
    assert git(remote, "rev-list", "--count", "main") == b"1\n"
    assert subprocess.run(["git", "fsck"], cwd=repository, capture_output=True, check=False).returncode != 0
