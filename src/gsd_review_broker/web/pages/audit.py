"""`/audit`: the events, newest first, with search and export."""

import json
from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from gsd_review_broker.domain.words import EventType
from gsd_review_broker.service.wire.reviews import EventResult
from gsd_review_broker.web import addresses
from gsd_review_broker.web.conversation import moment_of
from gsd_review_broker.web.site import HEADERS, Dashboard

_A_PAGE = 50
_EXPORTED_AT_ONCE = 200
_LONGEST_SEARCH = 200


def audit_routes(site: Dashboard) -> list[Route]:
    async def page(request: Request) -> Response:
        query = request.query_params
        words = query.get("q", "").strip()[:_LONGEST_SEARCH]
        kind = addresses.choice(query, "type", EventType) or ""
        review_id = query.get("review", "").strip() or None
        before = addresses.number(query, "before")
        events = await site.broker.page_queries.recent_events(
            review_id=review_id, before=before, limit=_A_PAGE, wanted=lambda event: _matches(event, kind, words)
        )
        again = {"q": words, "type": kind, "review": review_id}
        facts = {
            "events": [(event, moment_of(event)) for event in events["events"]],
            "more": addresses.with_query("/audit", {**again, "before": events["next_cursor"]})
            if events["next_cursor"]
            else None,
            "words": words,
            "kind": kind,
            "review_id": review_id,
            "kinds": list(EventType),
            "last_id": await site.broker.page_queries.last_event_id(),
            "chain": await site.broker.page_queries.chain(),
        }
        return await site.page(request, "audit.html", facts)

    async def export(_request: Request) -> Response:
        headers = HEADERS | {"Content-Disposition": 'attachment; filename="audit.jsonl"'}
        return StreamingResponse(_lines(site), media_type="application/jsonl", headers=headers)

    return [site.get("/audit", page), site.get("/audit/export.jsonl", export)]


def _matches(event: EventResult, kind: str, words: str) -> bool:
    if kind and event["event_type"] != kind:
        return False
    if not words:
        return True
    text = json.dumps([event["id"], event["actor"], event["review_id"], event["metadata"]], ensure_ascii=False)
    return all(word in text.casefold() for word in words.casefold().split())


async def _lines(site: Dashboard) -> AsyncGenerator[str]:
    """Yield one event a line, in order, up to the newest one at the time."""
    after = 0
    while True:
        page = await site.broker.review_queries.audit_log(review_id=None, after=after, limit=_EXPORTED_AT_ONCE)
        yield "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in page["events"])
        if page["next_cursor"] is None:
            return
        after = page["next_cursor"]
