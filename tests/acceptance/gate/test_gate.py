"""Install, approve, commit: the shortest whole way, with the real broker, hook and git."""

from collections.abc import Generator

import pytest

from tests.support.gated import Gated, gated
from tests.support.http import Browser


@pytest.fixture
def here(tmp_path) -> Generator[Gated]:
    with gated(tmp_path) as running:
        yield running


def test_a_commit_without_approval_is_refused_and_says_what_to_run(here: Gated) -> None:
    before = here.head()
    here.stage(hello_txt="one\nTWO\nthree\n")

    said = here.git("commit", "--no-verify", "-m", "Shout")

    assert said.code != 0
    assert here.head() == before
    assert "without approval: hello.txt" in said.err
    assert "Next: tandem propose --staged" in said.err
    [event] = here.events("gate_refused")
    assert event["metadata"]["files"] == ["hello.txt"]


def test_approved_content_lands_and_is_linked_to_its_review(here: Gated) -> None:
    here.stage(hello_txt="one\nTWO\nthree\n")
    review = here.approve()

    here.must("commit", "-m", "Shout")

    assert here.tandem("gate", "check", "HEAD~1..HEAD")["commits"][0]["reviews"] == [review]
    status = here.tandem("gate", "status")
    assert (status["installed"], status["mode"], status["commits"]) == (True, "block", [])


def test_the_dashboard_lists_what_landed_and_what_never_did(here: Gated) -> None:
    here.stage(hello_txt="one\nTWO\nthree\n")
    review = here.approve()
    page = Browser(here.process.port)
    assert f"/r/{review}" in page.get("/gate").text
    here.must("commit", "-m", "Shout it")
    here.landed(here.head())
    text = page.get("/gate").text
    assert text.index("Approved but never landed") < text.index("Overrides") < text.index(f"/r/{review}")
    timeline = here.call("get_review_timeline", review_id=review)["events"]
    assert timeline[-1]["metadata"]["commit"] == here.head()
    text = here.tandem.run("log", review).out
    assert here.head()[:12] in text, text
    assert here.tandem("audit", "verify")
