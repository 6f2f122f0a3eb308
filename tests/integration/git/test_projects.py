"""Several repositories in one broker: each has a project of its own, and nothing outside the allowed roots is told."""

import shutil
from pathlib import Path

import pytest

from gsd_review_broker.git.discovery import project_of_remote
from tests.support.local import LocalBroker, local_broker
from tests.support.mcp import ToolError
from tests.support.processes import git, make_repository


@pytest.mark.parametrize(
    ("url", "project"),
    [
        ("https://github.com/owner/name.git", "github.com/owner/name"),
        ("https://user:secret@GitHub.com:443/owner/name", "github.com/owner/name"),
        ("git@github.com:owner/name.git", "github.com/owner/name"),
        ("ssh://git@github.com:22/owner/name.git/", "github.com/owner/name"),
        ("/srv/git/name.git", None),
        ("../name", None),
        ("file:///srv/name.git", None),
        ("https://github.com/a name", None),
        ("", None),
    ],
)
def test_a_remote_is_named_alike_however_it_is_reached(url: str, project: str | None) -> None:
    assert project_of_remote(url) == project


async def project_in(broker: LocalBroker, workspace: Path) -> str | None:
    made = await broker.create(workspace=str(workspace))
    return (await broker("get_proposal", review_id=made["review_id"]))["project"]


async def test_clones_and_worktrees_of_a_repository_are_one_project(tmp_path: Path) -> None:
    home = tmp_path / "code"
    one, other = make_repository(home / "one", {"a": "1\n"}), make_repository(home / "other", {"b": "2\n"})
    git(home, "clone", "-q", str(one), str(home / "clone"))
    git(one, "worktree", "add", "-q", str(home / "tree"))
    async with local_broker(tmp_path, allowed_roots=[str(home)]) as broker:
        first = await project_in(broker, one)
        assert first is not None
        assert first.startswith("commit-")
        assert {await project_in(broker, home / name) for name in ("clone", "tree")} == {first}
        assert await project_in(broker, other) != first
        for folder, url in ((other, "git@example.org:us/other.git"), (home / "clone", "https://example.org/us/other")):
            git(folder, "config", "remote.origin.url", url)
            assert await project_in(broker, folder) == "example.org/us/other"
        assert len((await broker("list_reviews", project=first))["reviews"]) == 3


async def test_the_brokers_own_repository_has_no_project_of_its_own(broker: LocalBroker, repository: Path) -> None:
    assert await project_in(broker, repository) is None


async def test_nothing_outside_the_allowed_roots_is_told(tmp_path: Path) -> None:
    home = tmp_path / "code"
    inside = make_repository(home / "inside")
    outside = make_repository(tmp_path / "outside")
    (home / "link").symlink_to(outside)
    answers: list[str] = []
    async with local_broker(tmp_path, allowed_roots=[str(home)]) as broker:
        for path in (outside, tmp_path / "missing", home / "link", home / ".." / "outside"):
            with pytest.raises(ToolError) as refused:
                await broker.create(workspace=str(path))
            assert refused.value.code == "forbidden"
            answers.append(refused.value.message.replace(str(path), "PATH"))
        assert len(set(answers)) == 1
        assert await project_in(broker, inside) is not None
    shutil.rmtree(outside)
