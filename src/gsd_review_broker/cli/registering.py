"""What a module of `cli/commands/` registers its commands with, and the options that commands share."""

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from gsd_review_broker.cli.context import Context
from gsd_review_broker.settings import locations

Run = Callable[[argparse.Namespace], int]


def later(module: str, function: str) -> Run:
    """Import the function's module when the command runs. The function gets the command's context."""

    def run(options: argparse.Namespace) -> int:
        return getattr(import_module(f"gsd_review_broker.cli.{module}"), function)(Context(options))

    return run


class Commands:
    """Collects the commands of `tandem`, or those of a group such as `tandem audit`."""

    def __init__(
        self, parser: argparse.ArgumentParser, *, title: str, parents: Sequence[argparse.ArgumentParser] = ()
    ) -> None:
        self._parents = parents
        self._parsers: Any = parser.add_subparsers(dest=title, required=True, metavar="COMMAND")
        self.groups: dict[str, Commands] = {}
        self.summaries: dict[str, str] = {}

    def add(
        self,
        name: str,
        run: Run,
        *,
        summary: str,
        details: str = "",
        parents: Sequence[argparse.ArgumentParser] | None = None,
    ) -> argparse.ArgumentParser:
        """`run` gets the parsed options and returns the exit code; it imports heavy modules itself."""
        parser: argparse.ArgumentParser = self._parsers.add_parser(
            name,
            help=summary,
            description=f"{summary[:1].upper()}{summary[1:]}." + (f"\n\n{details}" if details else ""),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=list(self._parents if parents is None else parents),
            allow_abbrev=False,
        )
        # The parser is kept for errors that argparse reports without the command's name.
        parser.set_defaults(run=run, parser=parser)
        self.summaries[name] = summary
        return parser

    def group(self, name: str, *, summary: str, parents: Sequence[argparse.ArgumentParser] = ()) -> "Commands":
        """Add a command that has subcommands, which get the options of `parents`."""
        parser: argparse.ArgumentParser = self._parsers.add_parser(
            name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}.", allow_abbrev=False
        )
        self.groups[name] = Commands(parser, title=f"{name}_command", parents=parents)
        self.summaries[name] = summary
        return self.groups[name]

    @property
    def parsers(self) -> dict[str, argparse.ArgumentParser]:
        return self._parsers.choices


def broker_options() -> argparse.ArgumentParser:
    """Return the options of every command that calls a broker."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--json", action="store_true", help="print exactly one JSON document")
    which = parser.add_argument_group("which broker")
    which.add_argument("--url", help="its address (else BROKER_URL, else the broker of this folder)")
    add_place_options(which)
    return parser


def add_place_options(parser: Any) -> None:
    parser.add_argument(
        "--db", help=f"database file ({locations.PROJECT_FOLDER}/{locations.DATABASE_NAME} in the repository)"
    )
    parser.add_argument("--config", help="configuration file instead of the project's")
    parser.add_argument("--user", action="store_true", help="the user's broker, even inside a repository")


def identity_option() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--as", dest="identity", metavar="WHO", help="act as this identity (human:<user>)")
    return parser


def add_review(parser: argparse.ArgumentParser, *, is_optional: bool = False) -> None:
    help_text = "the review's id, or at least its first 6 characters"
    parser.add_argument("review", metavar="ID", help=help_text, nargs="?" if is_optional else None)
