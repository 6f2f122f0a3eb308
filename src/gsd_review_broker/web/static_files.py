"""The style and the scripts, read once. A file's address contains a hash of its content, so it is cached forever."""

import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

_FOLDER = Path(__file__).parent / "static"
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}


class StaticFiles:
    def __init__(self) -> None:
        contents = {path.name: path.read_bytes() for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES}
        # One hash for all files, because scripts import one another by name.
        total = hashlib.sha256(b"\0".join(name.encode() + b"\0" + content for name, content in contents.items()))
        self._sum = total.hexdigest()[:12]
        self._files = contents

    def address(self, name: str) -> str:
        if name not in self._files:
            raise KeyError(name)
        return f"/static/{self._sum}/{name}"

    def route(self) -> Route:
        async def answer(request: Request) -> Response:
            name = request.path_params["name"]
            if request.path_params["sum"] != self._sum or name not in self._files:
                return PlainTextResponse("not found\n", status_code=404)
            return Response(self._files[name], media_type=_TYPES[Path(name).suffix], headers=_FOR_EVER)

        return Route("/static/{sum}/{name}", answer, methods=["GET"])
