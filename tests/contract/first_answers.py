"""What `tandem mcp` answers while the broker starts, from the tools themselves."""

import json
from pathlib import Path

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from gsd_review_broker import __version__
from gsd_review_broker.cli.broker import bridge
from gsd_review_broker.domain.words import Audience
from gsd_review_broker.mcp import server
from gsd_review_broker.mcp.tools import REGISTRY

FIRST_ANSWERS = Path(bridge.__file__).with_name(bridge.FILE)


def first_answers_text() -> str:
    content = {
        "server": {"name": server.SERVER_NAME, "title": server.SERVER_TITLE, "version": __version__},
        "versions": list(HANDSHAKE_PROTOCOL_VERSIONS),
        "modern_versions": list(MODERN_PROTOCOL_VERSIONS),
        "endpoints": {
            "/mcp" if audience is Audience.ALL else f"/mcp/{audience.value}": {
                "instructions": server.INSTRUCTIONS[audience],
                "tools": list(REGISTRY.shown_to(audience)),
            }
            for audience in Audience
        },
        "tools": {
            name: tool.wire.model_dump(mode="json", by_alias=True, exclude_none=True)
            for name, tool in REGISTRY.shown_to(Audience.ALL).items()
        },
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
