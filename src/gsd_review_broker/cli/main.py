"""The commands `tandem` and `gsd-review-broker`."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from gsd_review_broker import __version__
from gsd_review_broker.cli.commands import TOPICS, all_modules, module_of
from gsd_review_broker.cli.exits import OF_ERROR, Exit
from gsd_review_broker.cli.registering import Commands
from gsd_review_broker.errors import BrokerError, Code, StartError

_ABOUT = "Coding agents in pairs: one proposes a change, another reviews it before it lands."


def main(arguments: Sequence[str] | None = None) -> int:
    return _while_somebody_reads(lambda: _main(arguments))


def _main(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in {"-h", "--help", "help"}:
        print(overview(), end="")
        return Exit.DONE if words else Exit.USAGE
    if words[0] in {"-V", "--version"}:
        print(f"tandem {__version__}")
        return Exit.DONE
    module = module_of(words[0])
    if module is None:
        return _no_such_command(words[0])
    parser, _ = build([module])
    options, unknown = parser.parse_known_args(words)
    if unknown:
        command: argparse.ArgumentParser = options.parser
        command.error(f"unrecognized arguments: {' '.join(unknown)}")
    return _run(options)


def serve_command(arguments: Sequence[str] | None = None) -> int:
    """`gsd-review-broker`: the same as `tandem serve`."""
    return _while_somebody_reads(lambda: _serve_command(arguments))


def _serve_command(arguments: Sequence[str] | None) -> int:
    from gsd_review_broker.cli.commands import serve

    parser = argparse.ArgumentParser(prog="gsd-review-broker", description="Start the review broker.")
    parser.add_argument("--version", action="version", version=f"gsd-review-broker {__version__}")
    serve.add_settings(parser)
    parser.set_defaults(run=serve.run_broker)
    return _run(parser.parse_args(arguments))


def build(modules: Sequence[str]) -> tuple[argparse.ArgumentParser, Commands]:
    parser = argparse.ArgumentParser(prog="tandem", description=_ABOUT, allow_abbrev=False)
    commands = Commands(parser, title="command")
    for name in modules:
        import_module(f"gsd_review_broker.cli.commands.{name}").register(commands)
    return parser, commands


def overview() -> str:
    """`tandem --help`: every command by its topic."""
    _, commands = build(all_modules())
    lines = ["usage: tandem COMMAND …", "", _ABOUT]
    for topic, names in TOPICS.items():
        lines += ["", topic]
        lines += [f"  {name:<16} {commands.summaries[name]}" for name in names]
    lines += ["", "tandem COMMAND --help describes a command; tandem --version prints the version."]
    return "\n".join(lines) + "\n"


def _no_such_command(word: str) -> int:
    import difflib

    known = [name for names in TOPICS.values() for name in names]
    near = difflib.get_close_matches(word, known, n=1)
    meant = f" Did you mean {near[0]}?" if near else ""
    print(f"tandem: there is no command {word!r}.{meant} `tandem --help` lists all.", file=sys.stderr)
    return Exit.USAGE


def _run(options: argparse.Namespace) -> int:
    try:
        code = options.run(options)
        sys.stdout.flush()
    except BrokerError as error:
        return _report(error, options)
    except StartError as error:
        if getattr(options, "json", False):
            return _report(BrokerError(Code.UNAVAILABLE, str(error), ""), options)
        _complain(f"{Path(sys.argv[0]).name}: {error}")
        return Exit.UNAVAILABLE
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # An OSError, but not one to report: see below.
        raise
    except OSError as error:
        if error.filename is not None:
            return _report(_of_file(error), options)
        if isinstance(error, FileNotFoundError):
            # What the system says about its own working folder has no name in it.
            gone = BrokerError(
                Code.NOT_FOUND, "the folder that you are in does not exist any more", "Go to another one."
            )
            return _report(gone, options)
        # A full disk behind the output: a sentence, not a traceback.
        _complain(f"{Path(sys.argv[0]).name}: {error}")
        _close_output()
        return Exit.FAILED
    return code


def _of_file(error: OSError) -> BrokerError:
    return BrokerError(
        Code.UNAVAILABLE,
        f"{os.fsdecode(error.filename)}: {error.strerror}",
        "Look at the permissions of the file and its folder, and at the space on the disk.",
    )


def _while_somebody_reads(run: Callable[[], int]) -> int:
    """Run until the reader of our output closes the pipe, which is not a failure."""
    try:
        try:
            return run()
        finally:
            # Also what argparse printed before it exits.
            sys.stdout.flush()
    except BrokenPipeError:
        _close_output()
        _close_errors()
        return Exit.NOBODY_READS


def _close_output() -> None:
    """Python would report it once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _close_errors() -> None:
    try:
        sys.stderr.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _report(error: BrokerError, options: argparse.Namespace) -> int:
    if getattr(options, "json", False):
        print(json.dumps({"error": error.as_json()}))
    else:
        _complain(f"tandem: {error}")
    return OF_ERROR[error.code]


def _complain(text: str) -> None:
    from gsd_review_broker.cli.screen import visible_block

    print(visible_block(text), file=sys.stderr)
