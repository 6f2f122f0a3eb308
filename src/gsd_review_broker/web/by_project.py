"""Pages and JSON routes for the holder of a project's token: over a broker that knows that project only."""

from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from gsd_review_broker.service.access import caller_in


class ByProject:
    def __init__(self, whole: ASGIApp, make: Callable[[str], ASGIApp]) -> None:
        self._whole = whole
        self._make = make
        self._made: dict[str, ASGIApp] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        project = caller_in(scope).project if scope["type"] == "http" else None
        await (self._whole if project is None else self._of(project))(scope, receive, send)

    def _of(self, project: str) -> ASGIApp:
        if project not in self._made:
            self._made[project] = self._make(project)
        return self._made[project]
