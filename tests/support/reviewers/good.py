"""A correct reviewer: claims, reads, judges, reports what it spent, and stays."""

import json
import os
import sys
import time

import client  # beside this file

sys.stdin.read()
while True:
    claimed = client.claim()
    proposal = client.call("get_proposal", review_id=claimed["review_id"], caller_id=client.ME)
    time.sleep(float(os.environ.get("GOOD_SECONDS", "0")))
    wants = "NO" in proposal["intent"]
    client.judge(claimed, "changes_requested" if wants else "approved", "as asked" if wants else None)
    sys.stdout.write(json.dumps({"type": "usage", "input_tokens": 100, "output_tokens": 10, "cost_usd": 0.01}) + "\n")
    sys.stdout.flush()
