"""Configuration: flags over environment over the project's file over the user's file over defaults.

The result is validated as a whole against `schema.py`. Every value knows its origin, and so does every error. A mistake
in one feature's settings is a problem: the feature is off, the broker starts, and users see the problem.
"""

import copy
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic import ValidationError

from gsd_review_broker.domain.words import OWN_COMMAND
from gsd_review_broker.errors import StartError
from gsd_review_broker.git import discovery
from gsd_review_broker.git.discovery import git_folder
from gsd_review_broker.settings import gate, locations
from gsd_review_broker.settings.listening import refuse_open_door
from gsd_review_broker.settings.locations import COMMAND_LINE, ENVIRONMENT, user_file
from gsd_review_broker.settings.owners import ProjectValue, WhoMaySet
from gsd_review_broker.settings.schema import (
    VARIABLE_PREFIX,
    Feature,
    PoolSettings,
    Problem,
    Section,
    Separated,
    Settings,
    inner_section,
    is_section,
    owner,
    resolved,
    section_at,
    section_values,
    typed,
    typed_or_default,
)
from gsd_review_broker.settings.state_files import Database, state_files

POOL = "reviewer_pool"
GATE = "gate"
# What GSD's agents do about reviews. The broker itself has no use for these.
REVIEW_SETTINGS = frozenset({"review", "review_granularity", "execution_mode"})
PROJECT_FILE = "project file"
# The gate reads its part for each question, and `tandem gsd` its own.
_READ_LATER = frozenset({"gate", *REVIEW_SETTINGS})
# The pool's setting that is not about the pool alone.
_OF_ALL_CLAIMS = "claim_timeout_seconds"
_MAY_ONLY_TIGHTEN = (
    "; git tracks this file, so it may have come with the repository, and it may only tighten your settings"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """The settings, the origin of each, and what the broker serves with them."""

    settings: Settings
    origins: dict[str, str]
    root: Path | None
    database: Database
    # The file that the user chose instead of the project's.
    chosen: Path | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def serves(self) -> str:
        return locations.served(self.root)


@dataclass(frozen=True, slots=True)
class _Layer:
    origin: str
    values: dict[str, Any]


def load(*, root: Path | None, flags: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Configuration:
    """Read and validate all sources. A mistake in one feature's settings turns it off and becomes a problem.

    Any other mistake is a StartError that names file, key and what is allowed.
    """
    environment = os.environ if environment is None else environment
    name = flags.get("config") or environment.get(gate.CONFIG_VARIABLE)
    chosen = Path(name) if name else None
    problems: list[Problem] = []
    users = _Layer(str(user_file()), locations.read_settings_file(user_file(), must_exist=False))
    flags_given = {name: value for name, value in flags.items() if value is not None and name != "config"}
    own = [_Layer(ENVIRONMENT, _of_environment(environment)), _Layer(COMMAND_LINE, flags_given)]
    project = _project_layer(root, chosen, _merged([users, *own])[0], problems)
    merged, origins = _merged([users, *([project] if project else []), *own])
    _put_gate(merged, origins, root, chosen, environment, problems)
    settings = _validated(merged, origins, root, problems)
    refuse_open_door(settings, origins)
    origin = origins.get("db", "default")
    database = locations.chosen_database(settings.db, origin, root, instance=settings.instance)
    if database.url is None and database.path.is_dir():
        raise StartError(f"{origin}: db: {database} is a folder; give a file's path.")
    return Configuration(
        settings=settings, origins=origins, root=root, database=database, chosen=chosen, problems=tuple(problems)
    )


def _put_gate(
    merged: dict[str, Any],
    origins: dict[str, str],
    root: Path | None,
    chosen: Path | None,
    environment: Mapping[str, str],
    problems: list[Problem],
) -> None:
    """Put in what the gate does instead of what the last source says: of its sources the strictest values apply."""
    project = locations.project_file(root) if root else None
    # Of the main work tree, mostly; otherwise git knows.
    folder = root and (root / ".git" if (root / ".git").is_dir() else git_folder(root))
    policy, values, where = gate.explained_policy(
        project,
        user_file(),
        chosen=chosen,
        installation=Path(folder, "tandem") if folder else None,
        environment=environment,
    )
    merged[GATE] = values
    for key in [key for key in origins if key.partition(".")[0] == GATE]:
        del origins[key]
    origins |= {f"{GATE}.{name}": origin for name, origin in where.items()}
    if policy.problem is not None and all(problem.feature != PROJECT_FILE for problem in problems):
        problems.append(
            Problem(
                feature=GATE,
                message=f"{policy.problem.removesuffix('.')}; the gate blocks, and exempts nothing",
                fix="Fix the file or the variable.",
            )
        )


def _validated(merged: dict[str, Any], origins: dict[str, str], root: Path | None, problems: list[Problem]) -> Settings:
    try:
        settings = Settings.model_validate(merged)
        _refuse_unusable(settings.reviewer_pool, origins, root)
    except ValidationError as error:
        name, why = str(error.errors(include_url=False)[0]["loc"][0]), _explained(error, origins)
        if _feature(name) is None:
            raise StartError(why) from error
    except StartError as error:
        name, why = POOL, str(error)
    else:
        return settings
    problems.append(_feature_problem(name, why))
    rest = {key: value for key, value in merged.items() if key != name}
    off = {POOL: _switched_off(merged.get(POOL))} if name == POOL else {}
    return _validated(rest | off, origins, root, problems)


def _feature(name: str) -> Feature | None:
    field = Settings.model_fields.get(name)
    return next((each for each in field.metadata if isinstance(each, Feature)), None) if field else None


def _feature_problem(name: str, why: str) -> Problem:
    feature = cast("Feature", _feature(name))
    by_command = "Fix the file, or run `tandem pool disable`; then `tandem down; tandem up`."
    return Problem(
        feature=name,
        message=f"{why.removesuffix('.')}; {feature.instead}",
        fix=by_command if name == POOL else "Fix the file.",
    )


def _refuse_unusable(pool: PoolSettings, origins: dict[str, str], root: Path | None) -> None:
    """Checks beyond one value, for a pool that is on. Raises StartError with file, key and what is allowed."""

    def refuse(key: str, why: str) -> StartError:
        origin = origins.get(f"{POOL}.{key}") or origins.get(POOL, "default")
        return StartError(f"{origin}: {POOL}.{key}: {why}")

    if not pool.is_on:
        return
    if pool.agent == OWN_COMMAND and pool.settings_of(OWN_COMMAND).command is None:
        raise refuse(
            "agent", "'command' needs reviewer_pool.agents.command.command, a list of arguments, in the user's file"
        )
    if pool.workspace_path is not None and not resolved(pool.workspace_path, root).is_dir():
        raise refuse("workspace_path", f"{pool.workspace_path!r} is not a folder")
    if pool.prompt_template_path is not None:
        try:
            resolved(pool.prompt_template_path, root).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise refuse("prompt_template_path", f"{pool.prompt_template_path!r} cannot be read: {error}") from error


def _switched_off(section: Any) -> dict[str, Any]:
    """Off; only the deadline of claims still applies, which is about all reviewers."""
    fields = section_values(section)
    try:
        kept = {name: typed(PoolSettings, name, fields[name]) for name in (_OF_ALL_CLAIMS,) if name in fields}
    except ValidationError:
        kept = {}
    return {"enabled": False, **kept}


def _project_layer(
    root: Path | None, chosen: Path | None, users: dict[str, Any], problems: list[Problem]
) -> _Layer | None:
    """Read the file that the user chose, or the repository's own. `users` are the user's own values."""
    if chosen is not None:
        path, values = chosen, locations.read_settings_file(chosen, must_exist=True)
    elif root is None:
        return None
    else:
        path = locations.project_file(root)
        try:
            values = locations.read_project_file(root)
        except locations.UnreadableSettingsError as error:
            message = f"{str(error).removesuffix('.')}; the file is ignored"
            problems.append(Problem(feature=PROJECT_FILE, message=message, fix=f"Fix or remove {path}."))
            return None
    is_tracked = bool(values) and root is not None and path.is_relative_to(root) and discovery.is_tracked(root, path)
    file = _ProjectFile(path, root, is_tracked, users, values)
    return _Layer(str(path), _permitted(file, problems))


class _ProjectFile(NamedTuple):
    path: Path
    root: Path | None
    is_tracked: bool
    # What the user decided, in the files and otherwise.
    users: dict[str, Any]
    values: dict[str, Any]

    def allowed_models(self, path: tuple[str, ...]) -> list[str] | None:
        users, own = section_values(self.users.get(POOL)), section_values(self.values.get(POOL))
        by_path = path[2] if path[:2] == (POOL, "agents") else None
        agent = by_path or typed_or_default(PoolSettings, "agent", {**users, **own})
        allowed = {name: value for name, value in users.items() if name == "allowed_models"}
        try:
            return PoolSettings.model_validate(allowed).models_for(agent)
        except ValidationError:
            return []


def _permitted(file: _ProjectFile, problems: list[Problem]) -> dict[str, Any]:
    """Return the file's values without those that it may not set; each of these becomes a problem."""
    kept = copy.deepcopy(file.values)
    for path, setter, objection in sorted(_objections(file, Settings, file.values, file.users, ()), key=itemgetter(0)):
        name, why = ".".join(path), objection
        if path[0] == POOL and not setter.is_tightening:
            problems.append(_feature_problem(POOL, f"{file.path}: {name}: {why}"))
            kept[POOL] = _switched_off(kept.get(POOL))
            continue
        section = kept
        for part in path[:-1]:
            section = section_values(section.get(part))
        section.pop(path[-1], None)
        if setter.is_tightening and file.is_tracked:
            why += _MAY_ONLY_TIGHTEN
        problems.append(
            Problem(
                feature=path[0],
                message=f"{file.path}: {name}: {why}",
                fix=f"Move {name} to {user_file()}, or remove it.",
            )
        )
    # Reviewers cost money: a file that came with a clone cannot start them, unless the user has enabled them too.
    if file.is_tracked and POOL not in file.users and _turns_pool_on(kept.get(POOL)):
        problems.append(
            Problem(
                feature=POOL,
                message=f"{file.path}: reviewer_pool: git tracks this file, so it may have come with the repository, "
                "and a repository must not start reviewers by itself; the pool is off",
                fix="Allow it with `tandem pool enable --scope user`, or set BROKER_REVIEWER_POOL__ENABLED.",
            )
        )
        kept[POOL] = _switched_off(kept[POOL])
    return kept


def _objections(
    file: _ProjectFile, section: type[Section], values: dict[str, Any], users: dict[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], WhoMaySet, str]]:
    for name, value in values.items():
        field = section.model_fields.get(name)
        if field is None:
            continue
        here, inner, setter = (*path, name), inner_section(field), owner(field)
        if inner is not None and isinstance(value, dict):
            fields, of_user = section_values(value), section_values(users.get(name))
            if is_section(field):
                yield from _objections(file, inner, fields, of_user, here)
                continue
            for key, one in fields.items():
                yield from _objections(file, inner, section_values(one), section_values(of_user.get(key)), (*here, key))
        elif setter is not None and (why := _objection(file, section, setter, here, value, users)) is not None:
            yield here, setter, why


def _objection(
    file: _ProjectFile, section: type[Section], setter: WhoMaySet, path: tuple[str, ...], value: Any,
    users: dict[str, Any],
) -> str | None:  # fmt: skip
    """Judge a value as the section takes it: "9" is a number, too."""
    try:
        wanted = typed(section, path[-1], value)
    except ValidationError:
        # What a project's file may not set at all, it may not set wrongly either. The validation reports the rest.
        wanted = value
        if setter.is_tightening:
            return None
    return setter.objection(
        ProjectValue(
            value=wanted,
            usual=typed_or_default(section, path[-1], users),
            root=file.root,
            is_tracked=file.is_tracked,
            allowed_models=file.allowed_models(path),
        )
    )


def _turns_pool_on(section: Any) -> bool:
    if section is None:
        return False
    try:
        return PoolSettings.model_validate(section).is_on
    except ValidationError:
        return True


def _of_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """BROKER_PORT is port, BROKER_LIMITS__DIFF_BYTES is limits.diff_bytes. Other BROKER_ names are not settings."""
    values: dict[str, Any] = {}
    for variable in sorted(environment):
        path = variable.removeprefix(VARIABLE_PREFIX).lower().split("__")
        if not variable.startswith(VARIABLE_PREFIX) or path[0] not in Settings.model_fields:
            continue
        section: dict[str, Any] | None = values
        for part in path[:-1]:
            inner = section.setdefault(part, {}) if section is not None else None
            section = cast("dict[str, Any]", inner) if isinstance(inner, dict) else None
        if section is not None:
            section[path[-1]] = _spelled(path, environment[variable])
    return values


def _spelled(path: list[str], text: str) -> Any:
    """Split a list's elements; everything else is read from the text when it is validated."""
    field = section_at(path[:-1]).model_fields.get(path[-1])
    separated = [each.separator for each in field.metadata if isinstance(each, Separated)] if field else []
    return text.split(separated[0]) if separated else text


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
        return f"{where}: {key}: unknown setting; allowed are {', '.join(section_at(path[:-1]).model_fields)}."
    message = problem["msg"].removeprefix("Value error, ")
    return f"{where}: {key}: {message[:1].lower()}{message[1:]} (it is {problem['input']!r})."


def refuse_tracked(database: Database, root: Path | None) -> None:
    """Refuse a database that came with the repository: the user did not give its approvals."""
    if root is None or not database.is_inside(root):
        return
    for path in discovery.tracked_among(root, state_files(database)):
        raise StartError(
            f"git tracks {path}, or does not say: it may have come with the repository, and what it holds cannot be "
            f"believed. If it is yours, run `git rm --cached {shlex.quote(str(path))}`; otherwise move it away, or use "
            "another database with --db."
        )


class SettingsWatch:
    """Compares the files with what they were when the broker started."""

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self._at_start = _files_content(root)

    def problems(self) -> list[Problem]:
        if _files_content(self._root) == self._at_start:
            return []
        return [
            Problem(
                feature="settings",
                message="the configuration was changed after the broker started, which does not use the changes yet",
                fix="Restart it: `tandem down; tandem up`.",
            )
        ]


def _files_content(root: Path | None) -> list[Any]:
    users = _read_or_error(lambda: locations.read_settings_file(locations.user_file(), must_exist=False))
    return [users] if root is None else [users, _read_or_error(lambda: locations.read_project_file(root))]


def _read_or_error(read: Callable[[], dict[str, Any]]) -> Any:
    try:
        return {name: value for name, value in read().items() if name not in _READ_LATER}
    except locations.UnreadableSettingsError as error:
        return str(error)
