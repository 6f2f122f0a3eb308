"""How a reviewer program calls its broker: its environment, and one POST a call. Standard library only."""

import http.client
import json
import os
import sys
import urllib.parse

PROTOCOL = "2026-07-28"
ME = os.environ.get("BROKER_REVIEWER_ID", "")
_url = urllib.parse.urlsplit(os.environ.get("BROKER_URL", "http://127.0.0.1:1/"))


class Refused(Exception):  # noqa: N818 - what a tool says
    def __init__(self, error):
        super().__init__(f"{error['code']}: {error['message']}")
        self.code = error["code"]


def call(tool, **arguments):
    connection = http.client.HTTPConnection(_url.hostname, _url.port, timeout=60)
    meta = {
        "io.modelcontextprotocol/protocolVersion": PROTOCOL,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": PROTOCOL,
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
        "Authorization": "Bearer " + os.environ.get("BROKER_TOKEN", ""),
    }
    connection.request("POST", _url.path, body, headers)
    answer = connection.getresponse().read().decode()
    connection.close()
    if not answer.startswith("{"):
        answer = [line[6:] for line in answer.split("\n") if line.startswith("data: ")][-1]
    result = json.loads(answer)["result"]
    if result.get("isError"):
        raise Refused(result["structuredContent"]["error"])
    return result["structuredContent"]


def claim(wait_seconds=20):
    """The next review, or None when there is nothing left to do."""
    while True:
        try:
            claimed = call("claim_next", reviewer_id=ME, wait=True, wait_seconds=wait_seconds)
        except Refused as refused:
            sys.stdout.write(json.dumps({"type": "error", "message": str(refused)}) + "\n")
            sys.stdout.flush()
            sys.exit(0 if refused.code == "forbidden" else 3)
        if claimed["claimed"]:
            return claimed


def judge(claimed, verdict="approved", reason=None):
    return call(
        "submit_verdict",
        review_id=claimed["review_id"],
        verdict=verdict,
        reason=reason,
        reviewer_id=ME,
        claim_generation=claimed["claim_generation"],
    )
