"""`tandem completion SHELL`, and `tandem __complete WORD…`, which the shell asks: with live ids."""

import argparse
from collections.abc import Callable
from typing import Any, cast

from gsd_review_broker.cli import commands as listed
from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.describe import first_line
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands
from gsd_review_broker.cli.screen import Screen, plain
from gsd_review_broker.client.connection import Json
from gsd_review_broker.errors import BrokerError, StartError

_BASH = """\
# bash: eval "$(tandem completion bash)"
_tandem() {
    local IFS=$'\\n'
    COMPREPLY=($(tandem __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
}
complete -o default -F _tandem tandem
"""
_ZSH = """\
# zsh: eval "$(tandem completion zsh)"
_tandem() {
    local -a found
    found=("${(@f)$(tandem __complete "${(@)words[2,CURRENT]}" 2>/dev/null | cut -f1)}")
    [[ -n "$found" ]] && compadd -a found || _files
}
compdef _tandem tandem
"""
_FISH = """\
# fish: tandem completion fish | source
function __tandem_complete
    set -l words (commandline -opc) (commandline -ct)
    tandem __complete $words[2..-1] 2>/dev/null
end
complete -c tandem -f -a '(__tandem_complete)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_PATIENCE_SECONDS = 1.0
_REVIEW_OPTIONS = {"review", "parent_id"}

Candidate = tuple[str, str]


def register(commands: Commands) -> None:
    completion = commands.add(
        "completion", print_script, summary="print a shell's completion script: bash, zsh or fish"
    )
    completion.add_argument("shell", choices=sorted(_SCRIPTS))
    complete = commands.add("__complete", run_complete, summary="list possible next words, for a shell")
    complete.add_argument("words", nargs=argparse.REMAINDER)


def print_script(options: argparse.Namespace) -> int:
    Screen().write(_SCRIPTS[options.shell])
    return Exit.DONE


def run_complete(options: argparse.Namespace) -> int:
    """Print nothing instead of an error: a person is typing."""
    words = options.words or [""]
    screen = Screen()
    for word, about in _candidates(words):
        if word.startswith(words[-1]):
            screen.write(f"{plain(word)}\t{plain(about)}\n")
    return Exit.DONE


def _candidates(words: list[str]) -> list[Candidate]:
    from gsd_review_broker.cli.main import build

    if len(words) == 1:
        _, everything = build(listed.all_modules())
        return [(name, everything.summaries[name]) for names in listed.TOPICS.values() for name in names]
    module = listed.module_of(words[0])
    if module is None:
        return []
    _, commands = build([module])
    if words[0] in commands.groups:
        group = commands.groups[words[0]]
        if len(words) == 2:  # noqa: PLR2004 - the group and the word that is typed
            return list(group.summaries.items())
        parser = group.parsers.get(words[1])
        return _arguments(parser, words[2:]) if parser else []
    parser = commands.parsers.get(words[0])
    return _arguments(parser, words[1:]) if parser else []


def _arguments(parser: argparse.ArgumentParser, words: list[str]) -> list[Candidate]:
    # argparse has no public API for what a parser accepts.
    actions = cast("list[Any]", vars(parser)["_actions"])
    by_option = {option: action for action in actions for option in action.option_strings}
    positionals = [action for action in actions if not action.option_strings]
    position, expects = 0, None
    values: list[str] = []
    for word in words[:-1]:
        if expects is not None:
            expects = None
        elif word in by_option:
            expects = by_option[word] if by_option[word].nargs != 0 else None
        else:
            position += 1
            values.append(word)
    if expects is not None:
        return _values(expects, values)
    if words[-1].startswith("-"):
        return [(option, action.help or "") for option, action in by_option.items()]
    return _values(positionals[position], values) if position < len(positionals) else []


def _values(action: Any, words: list[str]) -> list[Candidate]:
    if action.choices:
        return [(str(choice), "") for choice in action.choices]
    if action.dest in _REVIEW_OPTIONS:
        return _live("list_reviews", _reviews, limit=200)
    if action.dest == "finding" and not action.option_strings and words:
        return _live("get_discussion", _findings, review_id=words[0])
    return []


def _reviews(page: Json) -> list[Candidate]:
    return [(row["id"], _about(row)) for row in page["reviews"]]


def _findings(page: Json) -> list[Candidate]:
    return [(one["finding_id"], one["title"]) for one in page["findings"]]


def _about(review: Json) -> str:
    return f"{review['status']}: {first_line(review['intent'])[:60]}"


def _live(tool: str, read: Callable[[Json], list[Candidate]], **arguments: Any) -> list[Candidate]:
    options = argparse.Namespace(url=None, db=None, config=None, user=False, json=False)
    try:
        return read(Context(options).ask(tool, patience=_PATIENCE_SECONDS, **arguments))
    except (BrokerError, StartError, KeyError):
        return []
