"""`tandem serve` and `tandem config`."""

import argparse
import json
import os
import sys
from typing import Any, cast

from gsd_review_broker.cli.context import configuration_of
from gsd_review_broker.cli.registering import Commands, add_place_options
from gsd_review_broker.settings.state_files import is_postgresql, without_password


def register(commands: Commands) -> None:
    serve = commands.add("serve", run_broker, summary="run the broker in the foreground")
    add_settings(serve)
    config = commands.add("config", show_configuration, summary="show every setting and where it comes from")
    add_settings(config)
    config.add_argument("--json", action="store_true", help="as JSON")


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (8321, or the project's own; 0 takes a free one)")
    parser.add_argument(
        "--auth", choices=["off", "token"], help="who may call: everybody here, or holders of a token (off)"
    )
    add_place_options(parser)
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"], help="(info)")
    parser.add_argument("--log-format", choices=["console", "json"], help="(console)")


def run_broker(options: argparse.Namespace) -> int:
    # Nothing of what a start makes is garbage; it is collected and set aside when the broker is ready.
    import gc

    gc.disable()
    # pydantic would ask every installed package whether it is a plugin.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    configuration = with_a_port(configuration_of(options))
    from gsd_review_broker import server

    return server.serve(configuration)


def with_a_port(configuration: Any) -> Any:
    """Take the chosen port, else the one that `tandem up` would take: each project has its own."""
    if any(configuration.origins.get(name, "default") != "default" for name in ("host", "port")):
        return configuration
    from dataclasses import replace

    from gsd_review_broker.cli.broker import ports

    port = next(filter(ports.can_listen, ports.candidates(configuration.database)), ports.ANY)
    return replace(configuration, settings=configuration.settings.model_copy(update={"port": port}))


def _shown(value: Any) -> Any:
    return without_password(value) if isinstance(value, str) and is_postgresql(value) else value


def show_configuration(options: argparse.Namespace) -> int:
    configuration = configuration_of(options)
    settings: dict[str, Any] = configuration.settings.model_dump()
    rows: list[tuple[str, Any, str]] = []
    for key, value in settings.items():
        inner = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        names = {f"{key}.{name}": item for name, item in inner.items()} or {key: _shown(value)}
        rows += [(name, item, configuration.origins.get(name, "default")) for name, item in names.items()]
    rows.append(("(database)", str(configuration.database), configuration.origins.get("db", "default")))
    rows.append(("(serves)", configuration.serves, "where it was started"))
    if options.json:
        print(json.dumps({name: {"value": value, "from": origin} for name, value, origin in rows}))
        return 0
    for problem in configuration.problems:
        print(f"problem: {problem.message}. {problem.fix}", file=sys.stderr)
    width = max(len(name) for name, _, _ in rows)
    for name, value, origin in rows:
        print(f"{name:<{width}}  {json.dumps(value)}  ({origin})")
    return 0
