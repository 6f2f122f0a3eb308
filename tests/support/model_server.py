"""A scripted model for real agents: OpenAI's Responses, Anthropic's Messages and Google's streamGenerateContent, each
as far as the agents need it. Standard library only, on loopback.

The next step is read from the conversation itself, so that a repeated request gets the same answer.
"""

import http.server
import json
import re
import socketserver
import threading
from collections.abc import Iterator
from typing import Any, Self

SERVER = "gsdreview"


class ModelServer:
    """Reviews once: claims, reads the proposal, looks at a file, gives the verdict that the test wants, says "done"."""

    def __init__(self, verdict: str, reason: str, file: str) -> None:
        self.file = file
        self.verdict = verdict
        self.reason = reason
        self.requests: list[tuple[str, dict[str, Any]]] = []
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                self._send(200, "application/json", b'{"data":[],"models":[]}')

            def do_HEAD(self) -> None:
                self._send(200, "application/json", b"")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                request = json.loads(body or b"{}")
                owner.requests.append((self.path, request))
                status, kind, answer = owner.answer(self.path, request)
                self._send(status, kind, answer)

            def _send(self, status: int, kind: str, answer: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer)

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str, asked: dict[str, Any]) -> tuple[int, str, bytes]:
        if "/responses" in path:
            return 200, "text/event-stream", _responses(self._next(_spoken(asked), _tool_names_openai(asked)))
        if "/messages/count_tokens" in path:
            return 200, "application/json", b'{"input_tokens": 10}'
        if "/messages" in path:
            step = self._next(_spoken(asked), [tool["name"] for tool in asked.get("tools", [])])
            return _messages(step, streamed=bool(asked.get("stream")))
        if "generateContent" in path or "GenerateContent" in path:
            return _gemini(self._next(_spoken(asked), _tool_names_gemini(asked)), streamed="stream" in path)
        if "countTokens" in path:
            return 200, "application/json", b'{"totalTokens": 10}'
        return 404, "application/json", b'{"error":{"message":"unknown"}}'

    def _next(self, spoken: str, tools: list[str]) -> "Step":
        """Each answer of the broker leaves its traces in the conversation; they decide the next step."""
        named = {name.replace("__", "_").rpartition(f"{SERVER}_")[2]: name for name in tools if SERVER in name}
        me = re.search(r"You are ([a-z]+-r\d+-[0-9a-f]{8}), a code reviewer", spoken)
        if me is None or "claim_next" not in named:
            return Step(text="done")
        caller = me[1]
        claim = re.search(r'"claim_generation\\*"\s*:\s*(\d+)', spoken)
        review = re.search(r'"review_id\\*"\s*:\s*\\*"([0-9a-f]{16})', spoken)
        if claim is None or review is None:
            return Step(tool=named["claim_next"], arguments={"reviewer_id": caller, "wait": True, "wait_seconds": 20})
        review_id = review[1]
        if "get_proposal_called" not in _marks(spoken):
            return Step(
                tool=named["get_proposal"],
                arguments={"review_id": review_id, "caller_id": caller},
            )
        look = self._look(tools)
        if look is not None and f"CALLED:{look.tool}" not in spoken:
            return look
        if "submit_verdict_called" not in _marks(spoken):
            return Step(
                tool=named["submit_verdict"],
                arguments={
                    "review_id": review_id,
                    "verdict": self.verdict,
                    "reason": self.reason,
                    "reviewer_id": caller,
                    "claim_generation": int(claim[1]),
                },
            )
        return Step(text="done")

    def _look(self, tools: list[str]) -> "Step | None":
        """Each agent has its own way to read a file."""
        known: dict[str, dict[str, Any]] = {
            "Read": {"file_path": self.file},
            "read_file": {"file_path": self.file},
            "read": {"filePath": self.file},
            "exec_command": {"cmd": f"cat {self.file}"},
            "shell": {"command": ["cat", self.file]},
            "shell_command": {"command": f"cat {self.file}"},
        }
        return next((Step(tool=name, arguments=known[name]) for name in tools if name in known), None)


class Step:
    def __init__(self, *, text: str = "", tool: str = "", arguments: Any = None) -> None:
        self.text = text
        self.tool = tool
        self.arguments = arguments or {}

    @property
    def call_id(self) -> str:
        return "call_" + re.sub(r"[^a-z]", "", self.tool)[-20:]


def _marks(spoken: str) -> set[str]:
    """Which tools the model has called already, by their names in the calls it made."""
    return {f"{name}_called" for name in ("get_proposal", "submit_verdict") if f"CALLED:{name}" in spoken}


def _spoken(request: dict[str, Any]) -> str:
    """The whole conversation, with a mark for each call that the model made."""
    parts: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            name = value.get("name")
            is_call = value.get("type") in {"function_call", "tool_use"} or "args" in value
            if isinstance(name, str) and is_call:
                parts.append("CALLED:" + (name.rpartition(SERVER)[2].lstrip("_") or name))
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)
        elif isinstance(value, str):
            parts.append(value)

    for key in ("instructions", "input", "messages", "system", "contents"):
        walk(request.get(key))
    # Results that are objects, as Google's are, are read as JSON.
    parts.append(json.dumps(request.get("contents", "")))
    return "\n".join(parts)


def _tool_names_openai(request: dict[str, Any]) -> list[str]:
    names: list[str] = []
    for tool in request.get("tools", []):
        if tool.get("type") == "namespace":
            names += [f"{tool['name']}__{inner['name']}" for inner in tool.get("tools", [])]
        elif "name" in tool:
            names.append(tool["name"])
    return names


def _tool_names_gemini(request: dict[str, Any]) -> list[str]:
    return [one["name"] for tool in request.get("tools", []) for one in tool.get("functionDeclarations", [])]


def _events(events: Iterator[tuple[str, dict[str, Any]]]) -> bytes:
    return b"".join(f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode() for kind, data in events)


def _responses(step: Step) -> bytes:
    if step.tool:
        namespace, _, name = step.tool.rpartition("__")
        item: dict[str, Any] = {
            "type": "function_call",
            "id": "fc_1",
            "call_id": step.call_id,
            "name": name or step.tool,
            "arguments": json.dumps(step.arguments),
        }
        if namespace:
            item["namespace"] = namespace
    else:
        content = [{"type": "output_text", "text": step.text, "annotations": []}]
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 110,
    }

    def events() -> Iterator[tuple[str, dict[str, Any]]]:
        yield "response.created", {"type": "response.created", "response": {"id": "resp_1"}}
        yield "response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}
        done = {"id": "resp_1", "usage": usage, "output": [item], "status": "completed"}
        yield "response.completed", {"type": "response.completed", "response": done}

    return _events(events())


def _messages(step: Step, *, streamed: bool) -> tuple[int, str, bytes]:
    block: dict[str, Any] = (
        {"type": "tool_use", "id": f"toolu_{step.call_id}", "name": step.tool, "input": step.arguments}
        if step.tool
        else {"type": "text", "text": step.text}
    )
    stop = "tool_use" if step.tool else "end_turn"
    usage = {"input_tokens": 100, "output_tokens": 10}
    whole = {
        "id": f"msg_{step.call_id}", "type": "message", "role": "assistant", "model": "m", "content": [block],
        "stop_reason": stop, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    if not streamed:
        return 200, "application/json", json.dumps(whole).encode()

    def events() -> Iterator[tuple[str, dict[str, Any]]]:
        start = {**whole, "content": [], "stop_reason": None, "usage": {"input_tokens": 100, "output_tokens": 1}}
        yield "message_start", {"type": "message_start", "message": start}
        if step.tool:
            opened = {**block, "input": {}}
            delta: dict[str, Any] = {"type": "input_json_delta", "partial_json": json.dumps(step.arguments)}
        else:
            opened, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": step.text}
        yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": opened}
        yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": 0}
        ended = {"stop_reason": stop, "stop_sequence": None}
        yield "message_delta", {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 10}}
        yield "message_stop", {"type": "message_stop"}

    return 200, "text/event-stream", _events(events())


def _gemini(step: Step, *, streamed: bool) -> tuple[int, str, bytes]:
    part: dict[str, Any] = (
        {"functionCall": {"name": step.tool, "args": step.arguments}} if step.tool else {"text": step.text}
    )
    answer = {
        "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110},
        "modelVersion": "m",
    }
    if streamed:
        return 200, "text/event-stream", f"data: {json.dumps(answer)}\r\n\r\n".encode()
    return 200, "application/json", json.dumps(answer).encode()
