"""What a reviewer's process is given, and what of its output is passed on."""

import json
import sys
from pathlib import Path

from gsd_review_broker.domain.model import Identity
from gsd_review_broker.pool.launcher import Launcher, PoolSite
from gsd_review_broker.pool.output import LogFile
from gsd_review_broker.pool.process import Child, Exited, Output
from gsd_review_broker.settings.schema import PoolSettings

TOKEN = "tandem-reviewer-SECRET"


async def lines_of(child: Child) -> list[bytes]:
    lines: list[bytes] = []
    async for event in child.events():
        match event:
            case Output(some):
                lines += some
            case Exited():
                await child.reap()
            case _:
                pass
    return lines


async def test_a_childs_secret_is_replaced_in_its_log_and_in_the_lines_that_are_passed_on(tmp_path: Path) -> None:
    prints = "import sys; print('out ' + sys.argv[1] * 2); print(sys.argv[1] + ' err', file=sys.stderr)"
    child = await Child.start(
        [sys.executable, "-c", prints, TOKEN],
        environment={}, folder=tmp_path, log=LogFile(tmp_path / "log"), secret=TOKEN,
    )  # fmt: skip
    lines = await lines_of(child)
    assert sorted(lines) == [b"[token] err", b"out [token][token]"]
    assert sorted((tmp_path / "log").read_bytes().splitlines()) == sorted(lines)


async def test_a_reviewer_sees_the_allow_list_and_nothing_else_of_the_brokers_environment(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    settings = PoolSettings.model_validate(
        {"agent": "command", "agents": {"command": {"command": command}}, "environment": ["PASSED_ON"]}
    )
    site = PoolSite(broker_url="http://b", workspace=tmp_path, folder=tmp_path / "pool", template=None, pool="p1")
    inherited = {
        "PATH": "/usr/bin", "LC_ALL": "C", "PASSED_ON": "yes", "BROKER_TOKEN": "the broker's",
        "AWS_SECRET_ACCESS_KEY": "x", "SSH_AUTH_SOCK": "x", "OPENAI_API_KEY": "x", "GITHUB_TOKEN": "x",
    }  # fmt: skip
    launcher = Launcher(settings, site, inherited)
    identity = Identity("command-r1-0a1b2c3d")
    started = await launcher.start("command", None, identity=identity, display_name="command-r1", token=TOKEN)
    started.child.feed(started.prompt)
    (line,) = await lines_of(started.child)
    assert json.loads(line) == {
        "PATH": "/usr/bin",
        "LC_ALL": "C",
        "PASSED_ON": "yes",
        "BROKER_URL": "http://b",
        "BROKER_REVIEWER_ID": identity,
        "BROKER_TOKEN": "[token]",
        "BROKER_POOL": "p1",
    }
