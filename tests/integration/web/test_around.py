"""Lines around a hunk and whole files on a review's page: from the base that git checked."""

from pathlib import Path

import pytest

from tests.support.local import LocalBroker
from tests.support.processes import git

LINES = [f"line {number} <b>&amp;</b>" for number in range(1, 201)]
NEVER_SHOWN = "line 150 &lt;b&gt;&amp;amp;&lt;/b&gt;"


@pytest.fixture
async def review_id(broker: LocalBroker, repository: Path) -> str:
    path = repository / "long.txt"
    path.write_text("\n".join(LINES) + "\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "a long file")
    path.write_text(path.read_text().replace("line 100 ", "line one hundred "))
    diff = git(repository, "diff").decode()
    # The tree moves on: the base stays what git checked.
    git(repository, "checkout", "-q", "long.txt")
    return (await broker.create(diff=diff))["review_id"]


async def test_a_page_offers_more_lines_and_the_whole_file(broker: LocalBroker, review_id: str) -> None:
    page = await broker.page(f"/r/{review_id}")
    assert f'href="/r/{review_id}?file=0&amp;around=20#f0"' in page
    assert f'href="/r/{review_id}?file=0&amp;around=all#f0"' in page
    assert "line 95 " not in page


async def test_lines_around_a_hunk_are_shown_with_and_without_scripts(broker: LocalBroker, review_id: str) -> None:
    for address in (f"/r/{review_id}?file=0&around=20", f"/r/{review_id}/file?i=0&around=20"):
        shown = await broker.page(address)
        assert "line 77 &lt;b&gt;" in shown
        assert "line 76 " not in shown
        assert "around=100" in shown
        assert NEVER_SHOWN not in shown


async def test_a_file_is_shown_whole_with_the_change_in_it(broker: LocalBroker, review_id: str) -> None:
    for address in (f"/r/{review_id}?file=0&around=all", f"/r/{review_id}/file?i=0&around=all&view=split"):
        shown = await broker.page(address)
        assert NEVER_SHOWN in shown
        assert "line 1 &lt;b&gt;" in shown
        assert "one hundred" in shown
        assert "<b>&amp;</b>" not in shown
        assert "around=100" not in shown


async def test_the_base_is_what_the_claim_was_about_even_after_it_landed(
    broker: LocalBroker, review_id: str, repository: Path
) -> None:
    await broker("claim_review", review_id=review_id, reviewer_id="codex")
    await broker("submit_verdict", review_id=review_id, verdict="approved", claim_generation=1)
    (repository / "long.txt").write_text("another file by now\n")
    git(repository, "commit", "-qam", "change everything")
    assert NEVER_SHOWN in await broker.page(f"/r/{review_id}/file?i=0&around=all")


async def test_what_cannot_be_shown_is_said(broker: LocalBroker, review_id: str, repository: Path) -> None:
    (repository / "long.txt").write_text("another file by now\n")
    git(repository, "commit", "-qam", "change everything")
    broker.clock.pass_time(60)
    said = await broker.page(f"/r/{review_id}/file?i=0&around=all", status=404)
    assert "does not know the base of revision 1" in said
    assert "is not a number" in await broker.page(f"/r/{review_id}/file?i=0&around=x", status=400)


async def test_a_file_that_is_too_large_is_not_read(broker: LocalBroker, repository: Path) -> None:
    path = repository / "huge.txt"
    path.write_text("x" * 99 + "\n" + "".join(f"{number:099}\n" for number in range(11_000)))
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "a huge file")
    path.write_text(path.read_text().replace("x" * 99, "y"))
    diff = git(repository, "diff").decode()
    git(repository, "checkout", "-q", "huge.txt")
    review_id = (await broker.create(diff=diff))["review_id"]
    said = await broker.page(f"/r/{review_id}/file?i=0&around=all", status=413)
    assert "more than 1048576 bytes" in said
