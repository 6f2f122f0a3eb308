"""git's own aliases: the commands that a word stands for if it is not a command of git.

Reading the configuration starts no program, whatever the repository's file says: `git config --get` only reads."""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from gsd_review_broker.cli.gate.shell import GIT, Call, calls_in
from gsd_review_broker.git.discovery import find_root
from gsd_review_broker.git.program import run_users_git_config, text_of

# git looks for an alias only if it does not know the word. These are the ones that are typed most; asking about another
# costs one short process.
KNOWN = frozenset({
    "add", "am", "apply", "archive", "bisect", "blame", "branch", "cat-file", "checkout", "cherry-pick", "clean",
    "clone", "commit", "commit-tree", "config", "describe", "diff", "diff-tree", "fetch", "format-patch", "fsck", "gc",
    "grep", "hash-object", "init", "log", "ls-files", "ls-remote", "ls-tree", "merge", "merge-base", "mv", "notes",
    "pull", "push", "rebase", "reflog", "remote", "reset", "restore", "rev-list", "rev-parse", "revert", "rm",
    "shortlog", "show", "show-ref", "sparse-checkout", "stage", "stash", "status", "submodule", "switch",
    "symbolic-ref", "tag", "update-index", "update-ref", "version", "worktree", "write-tree",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Alias:
    """`text` as it is configured; a text that begins with `!` is shell, and runs in `root`."""

    text: str
    root: Path | None


# Which alias has this name in the repository around this folder?
AliasOf = Callable[[Path, str], Alias | None]


def configured_alias(folder: Path, name: str) -> Alias | None:
    """As the user's own git finds it: in the repository's, the user's and the system's configuration."""
    if not folder.is_dir() or "\n" in name or "=" in name:
        return None
    answer = run_users_git_config(folder, "--get", f"alias.{name}")
    if answer.code != 0:
        return None
    text = text_of(answer.output)
    return Alias(text, find_root(folder) if text.startswith("!") else folder)


def given_aliases(settings: Iterable[str]) -> dict[str, str]:
    """Those of `git -c alias.NAME=TEXT`."""
    pairs = (setting.partition("=") for setting in settings)
    return {key[6:].lower(): text for key, _, text in pairs if key.lower().startswith("alias.")}


def calls_of_alias(alias: Alias, words: list[str], folder: Path | None) -> list[Call]:
    """What git runs for the alias with these words after it. Raises ValueError for text that ends inside a quote."""
    if not alias.text.startswith("!"):
        return [Call((GIT, *shlex.split(alias.text), *words), folder)]
    given = shlex.join(words)
    text = alias.text[1:].replace('"$@"', given).replace("$@", given)
    return calls_in(f"{text} {given}", alias.root)
