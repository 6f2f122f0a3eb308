"""Paths: the configuration's files, the database, what a broker there serves; and the user's own files beside them.

The broker and its clients have to agree on these, and a client has no time for the whole configuration. So this module
imports little, and reads only the settings that it needs. The git hook reads the user's token and brokers by itself.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from gsd_review_broker.errors import BrokerError, Code, StartError
from gsd_review_broker.files import (
    UnfitFileError,
    is_private,
    links_in,
    make_private_folder,
    read_regular,
    read_with_status,
    write_private,
)
from gsd_review_broker.settings import state_files
from gsd_review_broker.settings.state_files import Database, is_postgresql, key_of, without_password

APPLICATION = "gsd-review-broker"
DATABASE_NAME = "codex_review_broker.sqlite3"
PROJECT_FOLDER = ".planning"
PROJECT_FILE = "review-broker.json"
DEFAULT_PORT = 8321
COMMAND_LINE = "command line"
ENVIRONMENT = "environment"


class Locations(NamedTuple):
    """The broker that belongs to a folder, whether it is running or not."""

    root: Path | None
    database: Database

    @property
    def serves(self) -> str:
        return served(self.root)


def served(root: Path | None) -> str:
    return str(root) if root else "user"


def user_file() -> Path:
    return _platform_folder("XDG_CONFIG_HOME", "~/.config") / "config.json"


def project_file(root: Path) -> Path:
    return root / PROJECT_FOLDER / PROJECT_FILE


def state_folder() -> Path:
    return _platform_folder("XDG_STATE_HOME", "~/.local/state")


def data_folder() -> Path:
    return _platform_folder("XDG_DATA_HOME", "~/.local/share")


def _platform_folder(variable: str, default: str) -> Path:
    """Follow the platform's convention. macOS and Windows have one folder for configuration, data and state."""
    if sys.platform == "win32":
        variable, default = "LOCALAPPDATA", "~\\AppData\\Local"
    elif sys.platform == "darwin":
        default = "~/Library/Application Support"
    return Path(os.environ.get(variable, "").strip() or os.path.expanduser(default)) / APPLICATION  # noqa: PTH111 - unlike Path.expanduser, it never raises


def key_file() -> Path:
    """Return the file of the broker's own key, which signs receipts."""
    return state_folder() / "receipt-key.pem"


def public_key_file() -> Path:
    return key_file().with_suffix(".pub")


def locate(
    root: Path | None, *, db: str | None, config: str | None, environment: Mapping[str, str] | None = None
) -> Locations:
    """Find the database that the whole configuration would name, and read as few files as possible."""
    value, origin = setting("db", root, flag=db, config=config, environment=environment)
    if value is not None and not isinstance(value, str):
        raise StartError(f"{origin}: db: a file's path is needed (it is {value!r}).")
    instance = ""
    if value is not None and is_postgresql(value):
        instance = str(setting("instance", root, flag=None, config=config, environment=environment)[0] or "")
    return Locations(root=root, database=chosen_database(value, origin, root, instance=instance))


def setting(
    name: str,
    root: Path | None,
    *,
    flag: Any,
    config: str | None,
    environment: Mapping[str, str] | None = None,
) -> tuple[Any, str]:
    """Return one top-level setting, unchecked, and its origin; (None, "default") if it is not set."""
    environment = os.environ if environment is None else environment
    if flag is not None:
        return flag, COMMAND_LINE
    variable = f"BROKER_{name.upper()}"
    if variable in environment:
        return environment[variable], ENVIRONMENT
    chosen = config or environment.get("BROKER_CONFIG")
    for path, values in _files(root, chosen):
        if name in values:
            return values[name], str(path)
    return None, "default"


def _files(root: Path | None, chosen: str | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the settings files that apply, the strongest first; each is read when it is needed."""
    if chosen:
        yield Path(chosen), read_settings_file(Path(chosen), must_exist=True)
    elif root is not None:
        # The broker ignores a project's file that cannot be read, and lists it as a problem.
        with suppress(UnreadableSettingsError):
            yield project_file(root), read_project_file(root)
    yield user_file(), read_settings_file(user_file(), must_exist=False)


class UnreadableSettingsError(StartError):
    """A settings file exists but cannot be read."""


def read_project_file(root: Path) -> dict[str, Any]:
    """Read the repository's own file; empty if there is none. A link could lead to any file of the user: refuse it."""
    path = project_file(root)
    for link in links_in(path, below=root):
        raise UnreadableSettingsError(f"{path} is not read, since {link} is a link.")
    return _read(path, must_exist=False, follow_links=False)


def read_settings_file(path: Path, *, must_exist: bool) -> dict[str, Any]:
    return _read(path, must_exist=must_exist, follow_links=True)


def _read(path: Path, *, must_exist: bool, follow_links: bool) -> dict[str, Any]:
    try:
        text = read_regular(path, follow_links=follow_links).decode("utf-8")
    except FileNotFoundError:
        if must_exist:
            raise StartError(f"the configuration file {path} does not exist.") from None
        return {}
    except UnfitFileError as error:
        raise UnreadableSettingsError(f"{path}: cannot be used as a configuration file: {error}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableSettingsError(f"{path}: the configuration file cannot be read: {error}.") from error
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise UnreadableSettingsError(f"{path}: {place}: not valid JSON: {error.msg}.") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableSettingsError(f"{path}: line 1, column 1: not valid JSON: {error}.") from error
    if not isinstance(values, dict):
        raise UnreadableSettingsError(f"{path}: line 1, column 1: the whole file must be one JSON object.")
    return cast("dict[str, Any]", values)


def chosen_database(db: str | None, origin: str, root: Path | None, *, instance: str = "") -> Database:
    """Return the database that the settings name. Raises StartError if the broker must not write there, or must not
    trust what is there."""
    if db is not None and is_postgresql(db):
        return _on_postgresql(db, origin, root, instance)
    database = Database(_chosen_path(db, origin, root))
    state_files.refuse_unfit(database, root, origin)
    return database


def _on_postgresql(url: str, origin: str, root: Path | None, instance: str) -> Database:
    """Many brokers may use one; each keeps its own files in the user's state folder."""
    if origin not in {ENVIRONMENT, COMMAND_LINE, str(user_file())}:
        raise StartError(
            f"{origin}: db: a repository must not choose a server; give {without_password(url)} with --db, or in "
            f"{user_file()}."
        )
    key = key_of("\n".join((without_password(url), served(root), instance)))
    return Database(state_folder() / "postgresql" / key, url)


def _chosen_path(db: str | None, origin: str, root: Path | None) -> Path:
    if db is None:
        folder = root / PROJECT_FOLDER if root else data_folder()
        return folder / DATABASE_NAME
    if "://" in db:
        raise StartError(
            f"{origin}: db: {db.split('://')[0]}:// is not supported; give a file's path, or postgresql://."
        )
    path = Path(db).expanduser()
    if origin in {ENVIRONMENT, COMMAND_LINE}:
        return Path(os.path.abspath(path))  # noqa: PTH100 - symbolic links stay as they were written
    base = root or Path.home()
    try:
        inside = (base / path).resolve()
    except ValueError as error:
        raise StartError(f"{origin}: db: {db!r} is not a path: {error}.") from error
    if root is not None and origin != str(user_file()) and not inside.is_relative_to(root):
        raise StartError(f"{origin}: db: {db!r} lies outside the repository {root}.")
    return inside


_VARIABLE = "BROKER_TOKEN"
_LONGEST_TOKEN = 1_000
# One line for each repository that a broker on another machine judges: the address, a space, and the repository's root
# (of a bare one the git folder). It is the user's own file, because the broker at the address gets the user's token.
_BROKERS_FILE = "brokers"


def token_file() -> Path:
    return user_file().with_name("token")


def own_token(environment: Mapping[str, str] | None = None, *, path: Path | None = None) -> str | None:
    """Return the user's token, if there is one. A file that others can read is refused: its token is not a secret any
    more. `path` is the file if it is not the usual one."""
    environment = os.environ if environment is None else environment
    if _VARIABLE in environment:
        return _required_form(environment[_VARIABLE].strip(), f"the variable {_VARIABLE}")
    path = path or token_file()
    hint = f"Run `chmod 600 {path}`; if others may have read it, revoke the token and make another."
    content = _own_file(path, f"the token in {path}", hint, largest=_LONGEST_TOKEN, follow_links=True)
    return None if content is None else _required_form(content.decode("utf-8", "replace").strip(), str(path))


def _required_form(token: str, place: str) -> str | None:
    if not (token.isascii() and token.isprintable()):
        raise BrokerError(Code.INVALID_ARGUMENT, f"{place} does not hold a token", "It holds one line: tdm_…")
    return token or None


def brokers_file() -> Path:
    return user_file().with_name(_BROKERS_FILE)


def recorded_url(repository: str) -> str | None:
    """Return the address of the repository's broker, if it is on another machine. Raises BrokerError if the file cannot
    be trusted."""
    return _addresses(brokers_file()).get(repository)


def record_url(repository: str, url: str | None) -> None:
    """Record the address of the repository's broker; None removes the repository."""
    path = brokers_file()
    addresses = _addresses(path)
    if addresses.get(repository) == url:
        return
    if "\n" in repository or (url is not None and not (url.isascii() and url.isprintable() and " " not in url)):
        raise BrokerError(Code.INVALID_ARGUMENT, f"{url!r} for {repository!r} cannot be written down", "Use another.")
    addresses.pop(repository, None)
    if url is not None:
        addresses[repository] = url
    make_private_folder(path.parent)
    if not addresses:
        path.unlink(missing_ok=True)
        return
    text = "".join(f"{address} {name}\n" for name, address in addresses.items())
    write_private(path, text.encode("utf-8", "surrogateescape"))


def _addresses(path: Path) -> dict[str, str]:
    content = _own_file(path, str(path), f"Look at it, then run `chmod 600 {path}`.") or b""
    pairs = (line.partition(" ") for line in content.decode("utf-8", "surrogateescape").split("\n"))
    return {name: address for address, _, name in pairs if name}


def _own_file(path: Path, what: str, hint: str, **reading: Any) -> bytes | None:
    """Read a file of the user's own; None if there is none. `hint` says what to do if others can read it."""
    try:
        content, status = read_with_status(path, **reading)
    except FileNotFoundError:
        return None
    except (UnfitFileError, OSError) as error:
        raise BrokerError(Code.UNAVAILABLE, f"{what} cannot be read: {error}", "Fix the file.") from error
    if not is_private(status):
        raise BrokerError(Code.FORBIDDEN, f"{path} can be read or changed by others", hint)
    return content
