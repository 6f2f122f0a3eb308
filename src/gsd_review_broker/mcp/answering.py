"""Answers a tool call in wire form: runs the tool, counts and logs it, and words its result or refusal."""

import asyncio
from time import perf_counter
from typing import Any, cast

import structlog
from starlette.types import Scope

from gsd_review_broker.errors import WORDING_HEADER, BrokerError, Code, broker_failed
from gsd_review_broker.mcp.encoding import as_text
from gsd_review_broker.mcp.lean import AnswerCall
from gsd_review_broker.mcp.registry import Audience, Tool
from gsd_review_broker.observe import logs
from gsd_review_broker.service.access import caller_in
from gsd_review_broker.service.broker import Broker
from gsd_review_broker.service.wire.hints import Wording, envelope, wording_of

log = structlog.get_logger()

_LONG_LIST = 20
_LONG_TEXT = 8_192
_WORDING = WORDING_HEADER.encode()
# A proxy that repeats a request to another broker names the request by it.
_KEY_HEADER, _KEY = b"idempotency-key", "idempotency_key"


def answering(broker: Broker, tools: dict[str, Tool], audience: Audience) -> AnswerCall:
    async def answer(scope: Scope, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        tool = tools.get(name)
        if tool is None:
            return _failed(_no_such_tool(name, tools), scope)
        return await _called(tool, broker, _with_key(tool, arguments, scope), audience, scope)

    return answer


def _with_key(tool: Tool, arguments: dict[str, Any], scope: Scope) -> dict[str, Any]:
    """The header counts where a call that writes has no key of its own."""
    if tool.reads or _KEY in arguments:
        return arguments
    key = next((value for name, value in scope["headers"] if name == _KEY_HEADER), b"").strip()
    return {**arguments, _KEY: key.decode("latin-1")} if key else arguments


def _wording(scope: Scope) -> Wording:
    return wording_of(next((value for name, value in scope["headers"] if name == _WORDING), b"").decode("latin-1"))


async def _called(
    tool: Tool, broker: Broker, arguments: dict[str, Any], audience: Audience, scope: Scope
) -> dict[str, Any]:
    logs.call_begins(tool.name, arguments.get("review_id"))
    began, outcome = perf_counter(), "cancelled"
    try:
        caller = caller_in(scope)
        result = await tool(broker.for_project(caller.project), arguments, audience, caller)
        outcome = "ok"
    except BrokerError as error:
        outcome = error.code.value
        return _failed(error, scope)
    except Exception:
        log.exception("tool_failed")
        outcome = Code.INTERNAL.value
        return _failed(broker_failed(), scope)
    finally:
        took = perf_counter() - began
        broker.meters.tools[tool.name, outcome].add(took)
        if logs.shows_debug():
            log.debug("tool_called", outcome=outcome, seconds=took)
    if _is_page(result):
        # Work of a millisecond is done in pieces, so that a short call need not wait for all of it.
        await asyncio.sleep(0)
    text = as_text(result)
    if len(text) > _LONG_TEXT:
        await asyncio.sleep(0)
    return {
        "content": [{"type": "text", "text": text}],
        "structuredContent": result,
        "isError": False,
        "resultType": "complete",
    }


def _is_page(result: dict[str, Any]) -> bool:
    for value in result.values():  # noqa: SIM110 - a generator takes longer than the question, in every call
        if isinstance(value, list) and len(cast("list[Any]", value)) > _LONG_LIST:
            return True
    return False


def _no_such_tool(name: str, tools: dict[str, Tool]) -> BrokerError:
    return BrokerError(
        Code.NOT_FOUND,
        f"there is no tool {name[:100]!r} on this endpoint",
        f"It has {', '.join(tools)}; /mcp has all.",
    )


def _failed(error: BrokerError, scope: Scope) -> dict[str, Any]:
    # It may quote a caller's own words, which need not be valid Unicode.
    fields = {name: _sendable(text) for name, text in envelope(error, _wording(scope)).items()}
    text = f"{fields['code']}: {fields['message']}"
    return {
        "content": [{"type": "text", "text": f"{text}\n{fields['hint']}" if fields["hint"] else text}],
        "structuredContent": {"error": fields},
        "isError": True,
        "resultType": "complete",
    }


def _sendable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
