"""Configuration: flags over environment over the project's file over the user's file over defaults.

The result is validated as a whole against `declared.py`. Every value knows its origin, and so does every error.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from gsd_review_broker import LOOPBACK
from gsd_review_broker.domain.words import either
from gsd_review_broker.errors import StartError
from gsd_review_broker.git import discovery
from gsd_review_broker.settings import locations, pool, tracked
from gsd_review_broker.settings.database import Database
from gsd_review_broker.settings.declared import Settings
from gsd_review_broker.settings.locations import COMMAND_LINE, ENVIRONMENT, user_file
from gsd_review_broker.settings.pool import PoolSettings
from gsd_review_broker.settings.problems import POOL, PROJECT_FILE, REVIEW, Problem

# Settings that a cloned repository must not decide.
USERS_OWN = frozenset(
    {
        *("allowed_hosts", "allowed_roots", "approvals", "auth", "db_listen", "instance", "log_file", "notify_command"),
        *("tls_certificate", "tls_key", "trusted_proxies"),
    }
)
# Set for reviewer programs; they are not settings.
_NOT_SETTINGS = frozenset({"BROKER_CONFIG", "BROKER_URL", "BROKER_REVIEWER_ID", "BROKER_TOKEN", "BROKER_POOL"})

_LOCAL = either(LOOPBACK, joined="and")


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """The settings, the origin of each, and what the broker serves with them."""

    settings: Settings
    origins: dict[str, str]
    root: Path | None
    database: Database
    problems: tuple[Problem, ...] = ()

    @property
    def serves(self) -> str:
        return locations.served(self.root)


@dataclass(frozen=True, slots=True)
class _Layer:
    origin: str
    values: dict[str, Any]
    is_tracked: bool = False


def load(*, root: Path | None, flags: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Configuration:
    """A mistake in one feature's settings turns it off and becomes a problem.

    Any other mistake is a StartError that names file, key and what is allowed.
    """
    environment = os.environ if environment is None else environment
    chosen = flags.get("config") or environment.get("BROKER_CONFIG")
    problems: list[Problem] = []
    users = _Layer(str(user_file()), locations.read_settings_file(user_file(), must_exist=False))
    flags_given = {name: value for name, value in flags.items() if value is not None and name != "config"}
    own = [_environment_layer(environment), _Layer(COMMAND_LINE, flags_given)]
    project = _project_layer(root, Path(chosen) if chosen else None, users, problems)
    if project is not None and project.is_tracked:
        project = _without_foreign_pool(project, [users, *own], problems)
    merged, origins = _merged([users, *([project] if project else []), *own])
    settings = _validated(merged, origins, root, problems)
    _refuse_open_door(settings, origins)
    origin = origins.get("db", "default")
    database = locations.chosen_database(settings.db, origin, root, instance=settings.instance)
    if database.url is None and database.path.is_dir():
        raise StartError(f"{origin}: db: {database} is a folder; give a file's path.")
    return Configuration(settings=settings, origins=origins, root=root, database=database, problems=tuple(problems))


def _refuse_open_door(settings: Settings, origins: dict[str, str]) -> None:
    """Other machines are let in only by the user's own decision, and only with tokens."""
    where = origins.get("host", "default")
    if not settings.is_local and where not in {str(user_file()), ENVIRONMENT, COMMAND_LINE}:
        raise StartError(
            f"{where}: host: {settings.host!r} is not this machine alone, and a repository must not decide that; here "
            f"allowed are {_LOCAL}; set others in {user_file()}, by BROKER_HOST or with --host."
        )
    if not settings.is_local and (settings.auth != "token" or not settings.host):
        raise StartError(
            f"{where}: host: {settings.host!r} is not this machine alone; without tokens allowed are {_LOCAL} "
            "(for other addresses set auth to token)."
        )
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        missing = "tls_key" if settings.tls_key is None else "tls_certificate"
        raise StartError(f"{missing} is missing: TLS needs both tls_certificate and tls_key.")


def _validated(merged: dict[str, Any], origins: dict[str, str], root: Path | None, problems: list[Problem]) -> Settings:
    try:
        settings = Settings.model_validate(merged)
        users = {str(user_file()), ENVIRONMENT, locations.COMMAND_LINE}
        pool.check(settings.reviewer_pool, origins, root=root, users=users)
    except ValidationError as error:
        first = str(error.errors(include_url=False)[0]["loc"][0])
        if first in REVIEW:
            problems.append(_default_counts(first, _explained(error, origins)))
            rest = {name: value for name, value in merged.items() if name != first}
            return _validated(rest, origins, root, problems)
        if first != POOL:
            raise StartError(_explained(error, origins)) from error
        problems.append(_pool_is_off(_explained(error, origins)))
    except StartError as error:
        problems.append(_pool_is_off(str(error)))
    else:
        return settings
    return _validated({**merged, POOL: _switched_off(merged.get(POOL))}, origins, root, problems)


def _pool_is_off(why: str) -> Problem:
    return Problem(
        feature=POOL,
        message=f"{why.removesuffix('.')}; the pool is off",
        fix="Fix the file, or run `tandem pool disable`; then `tandem down; tandem up`.",
    )


def _default_counts(name: str, why: str) -> Problem:
    """The default of each of these is the strictest, so a mistake never skips a review."""
    return Problem(feature=name, message=f"{why.removesuffix('.')}; the default counts", fix="Fix the file.")


def _switched_off(section: Any) -> dict[str, Any]:
    """Off; only the deadline of claims still counts, which applies to all reviewers."""
    fields = cast("dict[str, Any]", section) if isinstance(section, dict) else {}
    kept = {name: fields[name] for name in ("claim_timeout_seconds",) if name in fields}
    try:
        PoolSettings.model_validate(kept)
    except ValidationError:
        kept = {}
    return {"enabled": False, **kept}


def _project_layer(root: Path | None, chosen: Path | None, users: _Layer, problems: list[Problem]) -> _Layer | None:
    """From the repository's own file, or from one that the user chose instead."""
    if chosen is None and root is None:
        return None
    path = chosen or locations.project_file(cast("Path", root))
    try:
        values = (
            locations.read_settings_file(chosen, must_exist=True)
            if chosen
            else locations.read_project_file(cast("Path", root))
        )
    except locations.UnreadableSettingsError as error:
        if chosen:
            raise
        problems.append(
            Problem(
                feature=PROJECT_FILE,
                message=f"{str(error).removesuffix('.')}; the file is ignored",
                fix=f"Fix or remove {path}.",
            )
        )
        return None
    values = _without_users_own(path, values, root, problems)
    is_tracked = bool(values) and root is not None and path.is_relative_to(root) and discovery.is_tracked(root, path)
    if is_tracked:
        values, loosened = tracked.tightened(path, values, _usual(users))
        problems += loosened
    return _Layer(str(path), values, is_tracked=is_tracked)


def _usual(users: _Layer) -> tracked.Usual:
    def usual(key: tuple[str, ...]) -> Any:
        here: Any = users.values
        default: Any = Settings()
        for name in key:
            here = cast("dict[str, Any]", here).get(name) if isinstance(here, dict) else None
            default = getattr(default, name, None)
        return default if here is None else here

    return usual


def _without_users_own(
    path: Path, values: dict[str, Any], root: Path | None, problems: list[Problem]
) -> dict[str, Any]:
    """Settings that only the user decides are left out and reported."""
    kept = dict(values)
    for key in sorted(USERS_OWN & values.keys()):
        del kept[key]
        problems.append(
            Problem(
                feature=key,
                message=f"{path}: {key}: counts only in the user's file, {user_file()}: a repository must not decide "
                "it",
                fix=f"Move {key} to {user_file()}, or remove it.",
            )
        )
    try:
        pool.refuse_in_project(path, values, root=root, users=user_file())
    except StartError as error:
        kept[POOL] = _switched_off(values.get(POOL))
        problems.append(_pool_is_off(str(error)))
    return kept


def _without_foreign_pool(project: _Layer, others: list[_Layer], problems: list[Problem]) -> _Layer:
    """Reviewers cost money: a file that came with a clone cannot start them, unless the user has enabled them too."""
    alone, _ = _merged([project])
    if any(POOL in layer.values for layer in others) or not _turns_pool_on(alone.get(POOL)):
        return project
    problems.append(
        Problem(
            feature=POOL,
            message=f"{project.origin}: reviewer_pool: git tracks this file, so it may have come with the repository, "
            "and a repository must not start reviewers by itself; the pool is off",
            fix="Allow it with `tandem pool enable --scope user`, or set BROKER_REVIEWER_POOL__ENABLED.",
        )
    )
    return _Layer(project.origin, {**project.values, POOL: _switched_off(project.values[POOL])}, is_tracked=True)


def _turns_pool_on(section: Any) -> bool:
    if section is None:
        return False
    try:
        return PoolSettings.model_validate(section).is_on
    except ValidationError:
        return True


def _environment_layer(environment: Mapping[str, str]) -> _Layer:
    """BROKER_PORT is port, BROKER_LIMITS__DIFF_BYTES is limits.diff_bytes. Other BROKER_ names are not settings."""
    values: dict[str, Any] = {}
    for name in sorted(environment):
        if not name.startswith("BROKER_") or name in _NOT_SETTINGS:
            continue
        key, _, inner = name.removeprefix("BROKER_").lower().partition("__")
        if key not in Settings.model_fields:
            continue
        value = environment[name]
        if not inner:
            values[key] = _from_environment(key, value)
        elif isinstance(section := values.setdefault(key, {}), dict):
            section[inner] = value
    return _Layer(ENVIRONMENT, values)


def _from_environment(key: str, value: str) -> Any:
    """Paths are listed as in PATH, names with commas."""
    if key == "allowed_roots":
        return value.split(os.pathsep)
    return value.split(",") if key in {"allowed_hosts", "trusted_proxies"} else value


def _merged(layers: list[_Layer]) -> tuple[dict[str, Any], dict[str, str]]:
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        _merge(merged, layer.values, "", layer.origin, origins)
    return merged, origins


def _merge(into: dict[str, Any], values: dict[str, Any], path: str, origin: str, origins: dict[str, str]) -> None:
    """Key by key at any depth; a value that is not a section replaces the previous one."""
    for key, value in values.items():
        origins[f"{path}{key}"] = origin
        if isinstance(value, dict) and isinstance(into.get(key, {}), dict):
            section = into[key] = dict(cast("dict[str, Any]", into.get(key, {})))
            _merge(section, cast("dict[str, Any]", value), f"{path}{key}.", origin, origins)
        else:
            into[key] = value


def _explained(error: ValidationError, origins: dict[str, str]) -> str:
    problem = error.errors(include_url=False)[0]
    path = [str(part) for part in problem["loc"]]
    key = ".".join(path)
    where = next(
        (origins[known] for n in range(len(path), 0, -1) if (known := ".".join(path[:n])) in origins), "default"
    )
    if problem["type"] == "extra_forbidden":
        return f"{where}: {key}: unknown setting; allowed are {', '.join(_siblings(path))}."
    message = problem["msg"]
    return f"{where}: {key}: {message[:1].lower()}{message[1:]} (it is {problem['input']!r})."


def _siblings(path: list[str]) -> list[str]:
    """The existing settings beside an unknown one."""
    section: type[BaseModel] = Settings
    for name in path[:-1]:
        annotation = section.model_fields[name].annotation if name in section.model_fields else None
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            section = annotation
        elif name == "agents":
            section = pool.AgentSettings
    return list(section.model_fields)
