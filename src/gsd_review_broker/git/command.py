"""The options and the environment that git is always started with.

It imports `os` and nothing else, because the gate's hook runs for a few milliseconds at each update of a reference.
All other programs start git through `git/program`.
"""

import os

# No other program is run, whatever the configuration says.
NO_PROGRAMS = (
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "diff.external=",
    "-c", "core.alternateRefsCommand=false",
)  # fmt: skip
# A partial clone fetches what is missing, by a program that its configuration names. git before 2.45 does not know
# GIT_NO_LAZY_FETCH.
_NO_NETWORK = (
    "-c", "protocol.allow=never",
    "-c", "core.sshCommand=false",
    "-c", "credential.helper=",
)  # fmt: skip
# git reads what is stored: diffs are taken as they are, and no cache answers instead of an object.
AS_IT_IS = (
    "-c", "apply.whitespace=nowarn",
    "-c", "apply.ignoreWhitespace=no",
    "-c", "core.protectHFS=true",
    "-c", "core.protectNTFS=true",
    "-c", "core.commitGraph=false",
    "-c", "core.untrackedCache=false",
    # GIT_GRAFT_FILE, set below, brings a hint.
    "-c", "advice.graftFileDeprecated=false",
)  # fmt: skip
# Settings of the repository that are left alone, since none of them changes which records a digest is made of:
# - core.autocrlf, core.eol, core.safecrlf, filter.*, core.bigFileThreshold, core.symlinks, core.fileMode,
#   core.trustctime, core.checkStat, core.sparseCheckout: about the work tree. A digest compares trees and the index.
# - core.ignoreCase, core.precomposeUnicode: how names are looked up in a file system.
# - index.*, core.splitIndex, core.preloadIndex, core.multiPackIndex, pack.*: where things are stored. What a claim
#   rests on is hashed again, wherever it comes from.
# - diff.*: records are asked for with --no-renames, --no-relative, --full-index, --ignore-submodules=none and -z, and
#   sorted, so renames, order, prefixes, abbreviations and quoting do not matter.
# - i18n.*: about the text of commit messages, which are not read.
# - core.worktree: a root from which git does not find the same repository is refused (`git/discovery`).
# - extensions.*: git refuses what it does not know. objectFormat is read from git and used.
# - include.path: whatever it includes is one of the settings above.
OPTIONS = (
    *NO_PROGRAMS,
    *_NO_NETWORK,
    *AS_IT_IS,
    "-c", "core.attributesFile=/dev/null",
    "-c", "core.excludesFile=/dev/null",
)  # fmt: skip
# Objects are what their ids say, and commits have the parents that they name.
TRUE_OBJECTS = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": os.devnull}
_FROM_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "USERPROFILE")
# Where git finds the objects. git sets these variables for the hooks that it runs.
_PLACES = (
    "GIT_DIR", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_QUARANTINE_PATH",
)  # fmt: skip


# The same for the hook and for all other programs.
FIXED_ENVIRONMENT = {
    **TRUE_OBJECTS,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}
# Removed where an environment cannot be built from nothing, as in the hook's shell script: these change what git reads
# or prints.
FOREIGN_VARIABLES = (
    "GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_EXTERNAL_DIFF", "GIT_DIFF_OPTS", "GIT_SHALLOW_FILE",
    "GIT_REPLACE_REF_BASE", "GIT_ATTR_SOURCE",
)  # fmt: skip


def git_environment() -> "dict[str, str]":
    kept = {name: os.environ[name] for name in _FROM_ENVIRONMENT if name in os.environ}
    return kept | FIXED_ENVIRONMENT


def places() -> "dict[str, str]":
    """Return the variables that name a hook's repository and its objects, which may still be in quarantine."""
    return {name: os.environ[name] for name in _PLACES if name in os.environ}


def command_line(arguments: "tuple[str, ...] | list[str]") -> "list[str]":
    return ["git", *OPTIONS, *arguments]


def read_git(arguments: "list[str]", environment: "dict[str, str]") -> "bytes | None":
    """Return what git prints; None if it fails. Its complaints go to the standard error of this process."""
    reading, writing = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_CLOSE, reading)]
    command = command_line(arguments)
    child = os.posix_spawnp(command[0], command, git_environment() | environment, file_actions=actions)
    os.close(writing)
    with open(reading, "rb") as file:  # noqa: PTH123 - pathlib is too much to import here
        output = file.read()
    _, status = os.waitpid(child, 0)
    return output if status == 0 else None


def alternate(path: str) -> str:
    """Write a path for the list of alternates, quoted if it contains the list's separator or a quote."""
    if os.pathsep not in path and '"' not in path and "\n" not in path:
        return path
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
