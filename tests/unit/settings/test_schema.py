"""What is derived from the declarations: every setting has an owner, a variable, and checks of a project's file."""

import argparse
import json
import os
from pathlib import Path
from typing import Annotated, Any

import pytest
from annotated_types import Ge, Le

from gsd_review_broker.cli.commands.serve import add_settings
from gsd_review_broker.settings import config
from gsd_review_broker.settings.config import Configuration
from gsd_review_broker.settings.gate import explained_policy
from gsd_review_broker.settings.owners import AtLeast, AtMost, Shared, Strict, Tightening, UsersOwn
from gsd_review_broker.settings.schema import GateSettings, Section
from tests.contract.settings import Setting, all_settings, choices
from tests.support.processes import git

SETTINGS = list(all_settings())
# Without those of each agent, which have the agent's name in their path.
NAMED = [setting for setting in SETTINGS if "<name>" not in setting.path]
TIGHTENING = [setting for setting in NAMED if isinstance(setting.owner, Tightening)]
LISTS = {
    "allowed_hosts": "reviews.example.org,other.example.org",
    "trusted_proxies": "10.0.0.5,10.0.0.0/8",
    "allowed_roots": os.pathsep.join(("/srv", "/home")),
}
# What its type cannot tell.
VALUES = {
    "host": "localhost",
    "db": "/srv/reviews.sqlite3",
    "reviewer_pool.agent": "claude",
    "reviewer_pool.prompt_template_path": __file__,
    "reviewer_pool.workspace_path": str(Path(__file__).parent),
}
# An argument list; two settings that need each other; and globs that add to others, if there are any.
EXCEPT = {"notify_command", "tls_certificate", "tls_key", "gate.branches"}


def name_of(setting: Setting) -> str:
    return setting.name


def value_at(loaded: Configuration, setting: Setting) -> Any:
    here: Any = loaded.settings
    for name in setting.path:
        here = getattr(here, name)
    return here


def test_a_setting_without_an_owner_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match=r"Forgotten\.size: declare who may set it"):

        class Forgotten(Section):
            known: Annotated[int, Shared("is declared")] = 1
            size: int = 2


def test_every_owner_says_what_the_setting_is_for() -> None:
    assert [setting.name for setting in SETTINGS if not setting.owner.about] == []


@pytest.mark.parametrize("setting", [setting for setting in NAMED if setting.name not in EXCEPT], ids=name_of)
def test_every_setting_has_a_variable(setting: Setting) -> None:
    default = setting.field.get_default(call_default_factory=True)
    text = VALUES.get(setting.name) or LISTS.get(setting.name) or a_text(setting, default)
    loaded = config.load(root=None, flags={}, environment={setting.variable: text})
    assert loaded.problems == ()
    assert value_at(loaded, setting) != default
    if isinstance(default, list) and setting.path[0] != "gate":
        assert len(value_at(loaded, setting)) == 2
    assert loaded.origins[setting.name] == "environment"


def a_text(setting: Setting, default: Any) -> str:
    """Another value than the default, as the environment spells it; of the gate's a stricter one."""
    allowed = choices(setting.field.annotation)
    match default:
        case _ if allowed:
            return next(choice for choice in reversed(allowed) if choice != default)
        case bool():
            return str(not default).lower()
        case int() | float():
            return str(a_number(setting, default))
        case list():
            return "one,two"
        case None if "int" in str(setting.field.annotation):
            return "17"
        case None if "bool" in str(setting.field.annotation):
            return "true"
        case _:
            return "other"


def a_number(setting: Setting, default: float) -> int:
    most = [each.le for each in setting.field.metadata if isinstance(each, Le)]
    return int(default) + 1 if not most or default < most[0] else int(default) - 1


def of_project(root: Path, setting: Setting, value: Any) -> Configuration:
    """As a file that git tracks says it."""
    content = value
    for name in reversed(setting.path):
        content = {name: content}
    path = root / ".planning" / "review-broker.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
    git(root, "add", "-f", str(path))
    return config.load(root=root, flags={}, environment={"BROKER_REVIEWER_POOL__ENABLED": "true"})


def looser_and_stricter(setting: Setting) -> tuple[Any, Any]:
    default = setting.field.get_default(call_default_factory=True)
    match setting.owner:
        case Strict(strictest=strictest):
            others = [choice for choice in choices(setting.field.annotation) if choice != strictest]
            return (others[0] if others else not strictest), strictest
        case AtMost():
            return (None, 5) if default is None else (default + 1, max(default - 1, least(setting)))
        case AtLeast():
            return default - 1, default + 1
        case _:
            return None, None


def least(setting: Setting) -> int:
    return next((int(str(each.ge)) for each in setting.field.metadata if isinstance(each, Ge)), 1)


@pytest.mark.parametrize("setting", TIGHTENING, ids=name_of)
@pytest.mark.parametrize("spelled", [lambda value: value, str], ids=["value", "text"])
def test_a_tracked_file_tightens_and_does_not_loosen(repository: Path, setting: Setting, spelled: Any) -> None:
    default = setting.field.get_default(call_default_factory=True)
    looser, stricter = looser_and_stricter(setting)
    found = of_project(repository, setting, spelled(stricter))
    assert (value_at(found, setting), found.problems) == (stricter, ())
    if looser is not None and looser != default:
        found = of_project(repository, setting, spelled(looser))
        assert value_at(found, setting) == default
        [problem] = found.problems
        assert f"{setting.name}: " in problem.message
        assert "which applies for you; git tracks this file" in problem.message


@pytest.mark.parametrize("setting", [setting for setting in NAMED if isinstance(setting.owner, UsersOwn)], ids=name_of)
def test_no_file_of_a_project_sets_what_is_the_users_own(repository: Path, setting: Setting) -> None:
    default = setting.field.get_default(call_default_factory=True)
    path = repository / ".planning" / "review-broker.json"
    content: Any = 7 if setting.name == "approvals.required" else ["/other"]
    for name in reversed(setting.path):
        content = {name: content}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
    found = config.load(root=repository, flags={}, environment={})
    assert value_at(found, setting) == default
    assert f"{path}: {setting.name}: applies only in the user's file" in found.problems[0].message


def test_the_gates_defaults_are_the_ones_that_the_hook_knows() -> None:
    _, values, origins = explained_policy(None, None, environment={})
    assert (values, origins) == (GateSettings().model_dump(), {})


def test_every_flag_of_serve_is_a_setting_with_the_same_choices_and_default() -> None:
    parser = argparse.ArgumentParser()
    add_settings(parser)
    settings = {setting.name: setting for setting in SETTINGS}
    of_place = {"help", "db", "config", "user"}
    for action in parser._actions:
        if action.dest in of_place:
            continue
        setting = settings[action.dest]
        assert list(action.choices or []) == choices(setting.field.annotation)
        default = setting.field.get_default(call_default_factory=True)
        assert str(default) in str(action.help)


def test_a_mistake_in_a_feature_does_not_keep_the_broker_from_starting(repository: Path) -> None:
    wrong = {
        "BROKER_NOTIFY_COMMAND": "not a list",
        "BROKER_REVIEWER_POOL__MAX_POOL_SIZE": "99",
        "BROKER_GATE__MODE": "loose",
        "BROKER_REVIEW__FAIL_MODE": "ajar",
        "BROKER_EXECUTION_MODE": "eventually",
    }
    loaded = config.load(root=repository, flags={}, environment=wrong)
    features = {problem.feature for problem in loaded.problems}
    assert features == {"notify_command", "reviewer_pool", "gate", "review", "execution_mode"}
    assert loaded.settings.gate.mode == "block"
    assert not loaded.settings.reviewer_pool.is_on
