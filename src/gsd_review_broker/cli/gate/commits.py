"""The commits that a line of shell would make: every `git commit` in it, and what was added before."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from gsd_review_broker.cli.gate.aliases import KNOWN, Alias, AliasOf, calls_of_alias, configured_alias, given_aliases
from gsd_review_broker.cli.gate.shell import GIT, UNKNOWN, Call, below, calls_in

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
# Programs that run the one that follows, and those of their options that take a word.
_WRAPPERS = {
    "env": {"-u", "--unset", "-C", "--chdir"},
    "command": set[str](),
    "exec": set[str](),
    "nohup": set[str](),
    "nice": {"-n"},
    "sudo": {"-u", "-g"},
    "timeout": {"-s", "-k"},
    "xargs": {"-I", "-n", "-P", "-d"},
}
_OPTIONS_WITH_WORD = {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--super-prefix"}
_COMMIT_WITH_WORD = {
    "-m", "--message", "-F", "--file", "-C", "--reuse-message", "-c", "--reedit-message", "-t", "--template",
    "--author", "--date", "--fixup", "--squash", "--cleanup", "--trailer", "--pathspec-from-file",
}  # fmt: skip
_LETTERS_WITH_WORD = "mFCct"
_MOST_ALIASES = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedCommit:
    """One `git commit`, as it was typed. `folder` is None if it cannot be told."""

    folder: Path | None
    takes_all: bool = False
    amends: bool = False
    includes: bool = False
    paths: tuple[str, ...] = ()
    # The words of each `git add` before it, in the same repository.
    added: tuple[tuple[str, ...], ...] = ()


@dataclass(slots=True)
class _Search:
    # Where the whole line starts; aliases are looked up there if the folder of a call cannot be told.
    folder: Path
    alias_of: AliasOf
    commits: list[WantedCommit] = field(default_factory=list[WantedCommit])
    added: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])


@dataclass(frozen=True, slots=True)
class _Command:
    """git's own command with its words, the folder that git works in, and the settings that it was given."""

    words: list[str]
    folder: Path | None
    settings: tuple[str, ...]


def commits_in(text: str, folder: Path, alias_of: AliasOf = configured_alias) -> list[WantedCommit]:
    """Text that cannot be read counts as a plain commit if it has both words: the gate then looks at the index."""
    search = _Search(folder, alias_of)
    try:
        for call in calls_in(text, folder):
            _look(call, search)
    except ValueError:
        return [WantedCommit(folder=folder)] if re.search(r"\bgit\b.*\bcommit\b", text, re.DOTALL) else []
    return search.commits


def _look(call: Call, search: _Search, depth: int = 0) -> None:
    words, folder = _unwrapped(call)
    if not words or Path(words[0]).name != GIT:
        return
    command = _command(words[1:], folder)
    name, rest = "".join(command.words[:1]), command.words[1:]
    if name in {"add", "stage"}:
        search.added.append(tuple(rest))
    elif name == "commit":
        if "--dry-run" not in rest:
            search.commits.append(_commit(rest, command.folder, tuple(search.added)))
    elif name and name not in KNOWN and depth < _MOST_ALIASES:
        _look_behind(name, command, search, depth)


def _look_behind(name: str, command: _Command, search: _Search, depth: int) -> None:
    """What an alias stands for; one alias may name another."""
    given = given_aliases(command.settings).get(name.lower())
    folder = command.folder or search.folder
    alias = Alias(given, folder) if given is not None else search.alias_of(folder, name)
    if alias is None:
        return
    try:
        calls = calls_of_alias(alias, command.words[1:], command.folder)
    except ValueError:
        calls = [Call((GIT, "commit", UNKNOWN), None)] if "commit" in alias.text else []
    for call in calls:
        _look(call, search, depth + 1)


def _unwrapped(call: Call) -> tuple[list[str], Path | None]:
    """Without assignments and without programs that only start another."""
    words, folder = list(call.words), call.folder
    while words:
        if _ASSIGNMENT.fullmatch(words[0]):
            folder = None if words[0].startswith(("GIT_DIR=", "GIT_WORK_TREE=", "GIT_INDEX_FILE=")) else folder
            words.pop(0)
        elif Path(words[0]).name in _WRAPPERS:
            wrapper = Path(words.pop(0)).name
            while words and words[0].startswith("-"):
                option = words.pop(0)
                value = words.pop(0) if option in _WRAPPERS[wrapper] and words else ""
                folder = below(folder, value) if option in {"-C", "--chdir"} else folder
            # `timeout` takes the time first.
            del words[: int(wrapper == "timeout")]
        else:
            break
    return words, folder


def _command(words: list[str], folder: Path | None) -> _Command:
    settings: list[str] = []
    while words and words[0].startswith("-"):
        option, words = words[0], words[1:]
        if option.startswith(("--git-dir", "--work-tree")):
            folder = None
        if option in _OPTIONS_WITH_WORD and words:
            folder = below(folder, words[0]) if option == "-C" else folder
            settings += words[:1] if option == "-c" else []
            words = words[1:]
    return _Command(words, folder, tuple(settings))


def _commit(words: list[str], folder: Path | None, added: tuple[tuple[str, ...], ...]) -> WantedCommit:
    flags: set[str] = set()
    paths: list[str] = []
    while words:
        word, words = words[0], words[1:]
        if word == "--":
            paths += words
            break
        if not word.startswith("-") or word == "-":
            paths.append(word)
            continue
        letters = re.match(rf"-([A-Za-z]*?)([{_LETTERS_WITH_WORD}].*)?$", word, re.DOTALL)
        if letters is None:
            flags.add(word.partition("=")[0])
            words = words[1:] if word in _COMMIT_WITH_WORD else words
        else:
            flags |= {f"-{letter}" for letter in letters[1]}
            words = words[1:] if letters[2] and len(letters[2]) == 1 else words
    # What a person would choose piece by piece cannot be told; the whole is judged.
    takes_all = bool(flags & {"-a", "--all", "-p", "--patch", "--interactive"})
    includes = bool(flags & {"-i", "--include"})
    return WantedCommit(
        folder=folder, takes_all=takes_all, amends="--amend" in flags, includes=includes, paths=tuple(paths),
        added=added,
    )  # fmt: skip
