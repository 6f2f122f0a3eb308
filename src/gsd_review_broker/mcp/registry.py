"""A tool: its name, description, arguments and audience, and how a call of it is answered in wire form."""

import asyncio
import inspect
import json
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, cast

import pydantic_core
import structlog
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from starlette.types import Scope

from gsd_review_broker.domain.caller import LOCAL, Caller
from gsd_review_broker.domain.rules.access import Right
from gsd_review_broker.domain.words import ROLES_WITH_TOOLS, Audience
from gsd_review_broker.errors import WORDING_HEADER, BrokerError, Code, broker_failed
from gsd_review_broker.observe import logs
from gsd_review_broker.service.access import Act, caller_in, names_in
from gsd_review_broker.service.broker import Broker
from gsd_review_broker.service.core import Repeat
from gsd_review_broker.service.validation import Integer, encoded, refuse_unstorable
from gsd_review_broker.service.wire.hints import Wording, envelope, wording_of


def _number_as_text(value: Any) -> Any:
    """Phases are often numbers, and models then send 1 or 2.1 without quotes; true is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return str(value) if math.isfinite(value) else value


Since = Annotated[Integer | None, Field(description="the last version you know")]
Key = str | None
Label = Annotated[str, BeforeValidator(_number_as_text)]


if TYPE_CHECKING:
    import mcp_types as types

log = structlog.get_logger()

_LONG_LIST = 20
_LONG_TEXT = 8_192
# A proxy that repeats a request to another broker names the request by it.
_KEY = "idempotency_key"
_KEY_HEADER = b"idempotency-key"
_WORDING = WORDING_HEADER.encode()


EVERYBODY = frozenset(ROLES_WITH_TOOLS)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What a tool function gets beside its arguments."""

    broker: Broker
    repeat: Repeat | None
    audience: Audience
    caller: Caller = LOCAL


@dataclass(frozen=True)
class Tool:
    name: str
    function: Callable[..., Awaitable[Any]]
    audiences: frozenset[Audience]
    reads: bool
    repeatable: bool

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """Made at the first call: all of them together would be a good part of a start."""
        return _model(self.function)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.arguments.model_fields)

    @cached_property
    def wire(self) -> "types.Tool":
        """Return the tool as tools/list shows it."""
        import mcp_types as types  # noqa: PLC0415 - only the SDK's servers need it

        return types.Tool(
            name=self.name,
            description=inspect.getdoc(self.function) or "",
            input_schema=compact_schema(self.arguments),
            annotations=types.ToolAnnotations(
                read_only_hint=self.reads,
                # Everything is appended, nothing deleted.
                destructive_hint=False,
                idempotent_hint=self.reads or self.repeatable,
                open_world_hint=False,
            ),
        )

    async def __call__(
        self,
        broker: Broker,
        arguments: dict[str, Any],
        audience: Audience = Audience.ALL,
        caller: Caller = LOCAL,
    ) -> Any:
        if not self._names.issuperset(arguments):
            for name in arguments.keys() - self._names:
                encoded(ascii(name), name)
        values = self._validated(arguments)
        for name, value in arguments.items():
            refuse_unstorable(name, value)
        key = values.pop(_KEY, None)
        repeat = None if key is None else self._repeat(key, arguments, caller)
        if not broker.gatekeeper.trusts(caller):
            await broker.gatekeeper.admit(caller, self._act(arguments))
        return await self.function(ToolCall(broker, repeat, audience, caller), **values)

    def _repeat(self, key: str, arguments: dict[str, Any], caller: Caller) -> Repeat:
        # The arguments as they came: leaving one out and passing its default are different calls.
        others = {name: value for name, value in arguments.items() if name != _KEY}
        return Repeat(tool=self.name, key=key, arguments=others, caller=caller.proven_identity)

    def _act(self, arguments: dict[str, Any]) -> Act:
        return Act(
            action=self.name,
            right=self.right,
            # In pool tools, reviewer_id is the target, not the caller.
            names=names_in(arguments, writes=not self.reads) if self.audiences else (),
            review_id=arguments.get("review_id"),
        )

    @property
    def right(self) -> Right:
        if self.reads:
            return Right.READ
        match Audience.PROPOSER in self.audiences, Audience.REVIEWER in self.audiences:
            case True, True:
                return Right.DISCUSS
            case True, False:
                return Right.PROPOSE
            case False, True:
                return Right.JUDGE
            case _:
                return Right.RUN_POOL

    def _validated(self, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            model: BaseModel = self.arguments.__pydantic_validator__.validate_python(arguments)
        except ValidationError as error:
            raise _invalid(self, error) from error
        return dict(vars(model))


def _invalid(tool: Tool, error: ValidationError) -> BrokerError:
    problems = [
        f"{'.'.join(str(part) for part in problem['loc'])}: {_said(problem['type'], problem['msg'])}"
        for problem in error.errors(include_url=False, include_input=False, include_context=False)[:5]
    ]
    names = ", ".join(tool.arguments.model_fields)
    return BrokerError(
        Code.INVALID_ARGUMENT,
        "; ".join(problems),
        f"{tool.name} takes {names}." if names else f"{tool.name} takes none.",
    )


def _said(kind: str, message: str) -> str:
    match kind:
        case "extra_forbidden":
            return "unknown argument"
        case "missing":
            return "required"
        case _:
            return message[:1].lower() + message[1:]


class _Arguments(BaseModel):
    # Strict: the schema says integer, so "5" is refused; unknown arguments are refused too.
    model_config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=False)


class Registry:
    """The tools by name, in the order in which they are listed."""

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}

    def tool(
        self, *audiences: Audience, reads: bool = False, repeatable: bool = True
    ) -> Callable[[Callable[..., Awaitable[Any]]], Callable[..., Awaitable[Any]]]:
        """Register a function. Its docstring is what agents read; annotations are true, since clients
        such as Codex refuse tools by them."""

        def register(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            name = function.__name__
            self._tools[name] = Tool(name, function, frozenset(audiences), reads, repeatable)
            return function

        return register

    def shown_to(self, audience: Audience) -> dict[str, Tool]:
        if audience is Audience.ALL:
            return dict(self._tools)
        return {name: tool for name, tool in self._tools.items() if audience in tool.audiences}


def _model(function: Callable[..., Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(function, eval_str=True).parameters.items())[1:]:
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[name] = (parameter.annotation, default)
    return create_model(function.__name__, __base__=_Arguments, **fields)


def compact_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return its JSON Schema without parts that cost tokens and say nothing: titles, nulls, null defaults."""
    schema = model.model_json_schema()
    return _object(schema, schema.get("$defs", {}))


def _object(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    properties = {name: _compact(value, definitions) for name, value in schema.get("properties", {}).items()}
    result: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if schema.get("required"):
        result["required"] = schema["required"]
    return result


def _compact(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return _object(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    kept = {name: value for name, value in schema.items() if name not in {"title", "default"}}
    choices = [choice for choice in kept.pop("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        kept |= choices[0]
    if "items" in kept:
        kept["items"] = _compact(kept["items"], definitions)
    if kept.get("additionalProperties") is True:
        del kept["additionalProperties"]
    return kept


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What one path offers, through the fast path or the SDK."""

    broker: Broker
    audience: Audience
    info: dict[str, str]
    """How the server names itself."""
    instructions: str
    tools: dict[str, Tool]

    async def answer(self, scope: Scope, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Run the tool and word its result or refusal, as tools/call sends it."""
        tool = self.tools.get(name)
        if tool is None:
            return _failed(_no_such_tool(name, self.tools), scope)
        return await _called(tool, self.broker, _with_key(tool, arguments, scope), self.audience, scope)


def _with_key(tool: Tool, arguments: dict[str, Any], scope: Scope) -> dict[str, Any]:
    """Add the header's key to a call that writes and has no key of its own."""
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
    text = _as_text(result)
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


def _as_text(value: Any) -> str:
    """Write the result as text without layout, for clients that read only text."""
    try:
        return pydantic_core.to_json(value).decode()
    except pydantic_core.PydanticSerializationError:
        # Half of a character.
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
