"""The commands `tandem` and `gsd-review-broker`."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from gsd_review_broker import __version__
from gsd_review_broker.errors import StartError

EXIT_FAILED = 1
EXIT_UNAVAILABLE = 3
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="tandem",
        description="Coding agents in pairs: one proposes, another reviews, only then it lands.",
    )
    parser.add_argument("--version", action="version", version=f"tandem {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="start the broker", description="Start the broker.")
    _add_settings(serve)
    serve.set_defaults(run=_serve)
    config = commands.add_parser(
        "config",
        help="show every setting and where it comes from",
        description="Show every setting and where it comes from.",
    )
    _add_settings(config)
    config.add_argument("--json", action="store_true", help="as JSON")
    config.set_defaults(run=_config)
    return _run(parser.parse_args(arguments))


def serve_command(arguments: Sequence[str] | None = None) -> int:
    """`gsd-review-broker`: the same as `tandem serve`."""
    parser = argparse.ArgumentParser(prog="gsd-review-broker", description="Start the review broker.")
    parser.add_argument("--version", action="version", version=f"gsd-review-broker {__version__}")
    _add_settings(parser)
    parser.set_defaults(run=_serve)
    return _run(parser.parse_args(arguments))


def _run(options: argparse.Namespace) -> int:
    try:
        return options.run(options)
    except StartError as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return EXIT_UNAVAILABLE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (8321; 0 takes a free one)")
    parser.add_argument("--db", help="database file (.planning/codex_review_broker.sqlite3 in the repository)")
    parser.add_argument("--config", help="configuration file instead of the project's")
    parser.add_argument("--user", action="store_true", help="the user's broker, even inside a repository")
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"], help="(info)")
    parser.add_argument("--log-format", choices=["console", "json"], help="(console)")


def _configuration(options: argparse.Namespace) -> Any:
    # Imported here, so that `tandem --version` costs nothing.
    from gsd_review_broker import config  # noqa: PLC0415
    from gsd_review_broker.checkout import find_root  # noqa: PLC0415

    flags = {name: getattr(options, name) for name in ("host", "port", "db", "config", "log_level", "log_format")}
    return config.load(root=None if options.user else find_root(Path.cwd()), flags=flags)


def _serve(options: argparse.Namespace) -> int:
    configuration = _configuration(options)
    from gsd_review_broker import app  # noqa: PLC0415

    return app.serve(configuration)


def _config(options: argparse.Namespace) -> int:
    configuration = _configuration(options)
    settings: dict[str, Any] = configuration.settings.model_dump()
    rows: list[tuple[str, Any, str]] = []
    for key, value in settings.items():
        inner = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        names = {f"{key}.{name}": item for name, item in inner.items()} or {key: value}
        rows += [(name, item, configuration.origins.get(name, "default")) for name, item in names.items()]
    rows.append(("(database)", str(configuration.database), configuration.origins.get("db", "default")))
    rows.append(("(serves)", configuration.serves, "where it was started"))
    if options.json:
        print(json.dumps({name: {"value": value, "from": origin} for name, value, origin in rows}))
        return 0
    width = max(len(name) for name, _, _ in rows)
    for name, value, origin in rows:
        print(f"{name:<{width}}  {json.dumps(value)}  ({origin})")
    return 0
