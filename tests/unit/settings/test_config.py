"""Which value counts, where it comes from, and what is said of a wrong one."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gsd_review_broker.cli.main import main
from gsd_review_broker.errors import StartError
from gsd_review_broker.settings import config, locations
from gsd_review_broker.settings.config import Configuration
from gsd_review_broker.settings.locations import locate
from gsd_review_broker.settings.schema import Settings
from gsd_review_broker.settings.state_files import Database
from tests.support.processes import git

LAYERS = ("default", "user", "project", "environment", "flag")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository: of a folder that is none, git cannot say that it tracks nothing."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q")
    return root


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def in_user_file(content: Any) -> Path:
    return write(config.user_file(), content)


def in_project_file(root: Path, content: Any) -> Path:
    return write(root / ".planning" / "review-broker.json", content)


def load(root: Path | None, environment: dict[str, str] | None = None, **flags: Any) -> Configuration:
    return config.load(root=root, flags=flags, environment=environment or {})


def refusal(root: Path | None, environment: dict[str, str] | None = None, **flags: Any) -> str:
    with pytest.raises(StartError) as refused:
        load(root, environment, **flags)
    return str(refused.value)


@pytest.mark.parametrize("upmost", range(len(LAYERS)), ids=LAYERS)
def test_the_upmost_layer_that_names_a_setting_decides_it(root: Path, upmost: int) -> None:
    user, project = config.user_file(), root / ".planning" / "review-broker.json"
    if upmost >= 1:
        in_user_file({"port": 1001})
    if upmost >= 2:
        in_project_file(root, {"port": 1002})
    environment = {"BROKER_PORT": "1003"} if upmost >= 3 else {}
    flags = {"port": 1004} if upmost >= 4 else {"port": None}
    found = load(root, environment, **flags)
    origins = [None, str(user), str(project), "environment", "command line"]
    assert found.settings.port == [8321, 1001, 1002, 1003, 1004][upmost]
    assert found.origins.get("port") == origins[upmost]


def test_sections_merge_key_by_key(root: Path) -> None:
    user = in_user_file({"limits": {"diff_bytes": 1, "text_bytes": 2}})
    project = in_project_file(root, {"limits": {"text_bytes": 3, "intent_bytes": 4}})
    found = load(root, {"BROKER_LIMITS__INTENT_BYTES": "5", "BROKER_LIMITS__FINDINGS": "6"})
    limits = found.settings.limits
    assert (limits.diff_bytes, limits.text_bytes, limits.intent_bytes, limits.findings) == (1, 3, 5, 6)
    assert limits.revisions == 200
    assert {key: found.origins.get(key) for key in ("limits.diff_bytes", "limits.text_bytes")} == {
        "limits.diff_bytes": str(user),
        "limits.text_bytes": str(project),
    }
    assert found.origins["limits.intent_bytes"] == found.origins["limits.findings"] == "environment"
    assert "limits.revisions" not in found.origins


def test_a_chosen_file_replaces_the_projects(root: Path, tmp_path: Path) -> None:
    in_project_file(root, {"port": 1002, "max_rounds": 9})
    by_environment = write(tmp_path / "by-environment.json", {"port": 1005})
    by_flag = write(tmp_path / "by-flag.json", {"port": 1006})
    found = load(root, {"BROKER_CONFIG": str(by_environment)})
    assert (found.settings.port, found.settings.max_rounds) == (1005, 5)
    assert found.origins["port"] == str(by_environment)
    assert load(root, {"BROKER_CONFIG": str(by_environment)}, config=str(by_flag)).settings.port == 1006


def test_a_chosen_file_must_be_there(root: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing.json"
    assert str(missing) in refusal(root, {"BROKER_CONFIG": str(missing)})


def test_foreign_names_in_the_environment_do_not_count(root: Path) -> None:
    others = {"BROKER_URL": "x", "BROKER_TOKEN": "x", "BROKER_REVIEWER_ID": "x", "BROKER_SOMETHING": "x", "PORT": "1"}
    assert load(root, others).settings == load(root).settings


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"prot": 1}, "prot: unknown setting; allowed are host, port, db"),
        ({"limits": {"diff": 1}}, "limits.diff: unknown setting; allowed are body_bytes, diff_bytes"),
        ({"limits": 5}, "limits: input should be a valid dictionary"),
        ({"port": 65536}, "port: input should be less than or equal to 65535 (it is 65536)"),
        ({"port": "many"}, "port: input should be a valid integer"),
        ({"host": 5}, "host: input should be a valid string"),
        ({"db": "a\0b"}, "is not a path"),
        ({"db": "."}, "is a folder"),
        ({"fence": "loose"}, "fence: input should be 'strict' or 'managed' (it is 'loose')"),
        ({"max_rounds": 0}, "max_rounds: input should be greater than or equal to 1"),
        ({"host": "0.0.0.0"}, "allowed are 127.0.0.1, localhost and ::1"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_the_key_and_what_is_allowed(root: Path, content: Any, said: str) -> None:
    for file in (config.user_file(), root / ".planning" / "review-broker.json"):
        write(file, content)
        message = refusal(root)
        assert message.startswith(f"{file}: ")
        assert said in message
        file.unlink()


UNREADABLE = {
    "{": "line 1, column 2: not valid JSON",
    '{\n "port": 1,\n}': "line 3, column 1: not valid JSON",
    "[]": "line 1, column 1: the whole file must be one JSON object",
    "[" * 100_000: "not valid JSON",
    "\udcff": "cannot be read",
    " " * 1_048_577: "at most 1048576 are read",
}


@pytest.mark.parametrize(("content", "said"), UNREADABLE.items(), ids=range(len(UNREADABLE)))
def test_a_file_that_cannot_be_read_ends_the_start_if_it_is_the_users_and_is_ignored_if_it_is_the_projects(
    root: Path, content: str, said: str
) -> None:
    project = in_project_file(root, "")
    project.write_bytes(content.encode("utf-8", "surrogateescape"))
    [problem] = load(root).problems
    assert problem.feature == "project file"
    assert problem.message.startswith(f"{project}: ")
    assert said in problem.message
    assert problem.message.endswith("; the file is ignored")
    assert locate(root, db=None, config=None, environment={}).database == load(root).database
    user = in_user_file("")
    user.write_bytes(content.encode("utf-8", "surrogateescape"))
    message = refusal(root)
    assert message.startswith(f"{user}: ")
    assert said in message


def test_what_is_no_file_is_ignored_as_a_project_file(root: Path, tmp_path: Path) -> None:
    file = in_project_file(root, "")
    file.unlink()
    file.mkdir()
    assert "not a regular file" in load(root).problems[0].message
    file.rmdir()
    file.symlink_to(write(tmp_path / "elsewhere.json", {"port": 1001}))
    assert f"since {file} is a link" in load(root).problems[0].message
    assert load(root).settings.port == 8321


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"BROKER_PORT": "http"}, "environment: port: input should be a valid integer"),
        ({"BROKER_PORT": ""}, "environment: port: input should be a valid integer"),
        ({"BROKER_HOST": "example.org"}, "environment: host: 'example.org'"),
        ({"BROKER_LIMITS__DIFF": "1"}, "environment: limits.diff: unknown setting"),
        ({"BROKER_LIMITS": "5", "BROKER_LIMITS__DIFF_BYTES": "1"}, "environment: limits: input should be"),
    ],
)
def test_a_wrong_environment_is_refused_with_its_key(root: Path, environment: dict[str, str], said: str) -> None:
    assert refusal(root, environment).startswith(said)


@pytest.mark.parametrize(
    ("key", "good", "wrong"),
    [
        (
            "allowed_hosts",
            ["reviews.example.org", "reviews.example.org:8443", "[::1]:8443", "10.0.0.1"],
            ["https://reviews.example.org", "reviews.example.org/", "*", "a b", "x:y"],
        ),
        ("trusted_proxies", ["10.0.0.5", "10.0.0.0/8", "::1"], ["*", "10.0.0.5/8", "proxy.example.org", "10.0.0.5:80"]),
        ("allowed_roots", ["/srv", "~/work", "~ada/work"], ["work", "./work", "."]),
    ],
)
def test_a_list_takes_only_what_can_match(root: Path, key: str, good: list[str], wrong: list[str]) -> None:
    in_user_file({key: [*good, " ", ""]})
    assert getattr(load(root).settings, key) == good
    for value in wrong:
        in_user_file({key: [*good, value]})
        assert f"{key}: {value!r} is not a" in refusal(root)


def test_what_only_the_user_may_decide_applies_in_the_users_file_alone(root: Path, tmp_path: Path) -> None:
    project = in_project_file(root, {"allowed_roots": ["/"], "notify_command": ["evil"], "log_file": "/x"})
    found = load(root)
    assert [problem.feature for problem in found.problems] == ["allowed_roots", "log_file", "notify_command"]
    for problem in found.problems:
        assert problem.message.startswith(f"{project}: {problem.feature}: applies only in the user's file")
        assert str(config.user_file()) in problem.fix
    assert (found.settings.allowed_roots, found.settings.notify_command, found.settings.log_file) == ([], [], None)
    project.unlink()
    chosen = write(tmp_path / "chosen.json", {"allowed_roots": ["/"]})
    assert [problem.feature for problem in load(root, {"BROKER_CONFIG": str(chosen)}).problems] == ["allowed_roots"]
    in_user_file({"allowed_roots": ["/srv"]})
    assert load(root).settings.allowed_roots == ["/srv"]


def test_the_database_lies_in_the_repository_or_in_the_users_data_folder(root: Path, own_home: Path) -> None:
    name = "codex_review_broker.sqlite3"
    assert load(root).database == Database(root / ".planning" / name)
    assert load(None).database.name == name
    assert load(None).database.is_inside(own_home)


def test_a_repository_cannot_put_the_database_elsewhere(root: Path, tmp_path: Path) -> None:
    project = in_project_file(root, {"db": "inside/x.sqlite3"})
    assert load(root).database == Database(root / "inside" / "x.sqlite3")
    for outside in ("../x.sqlite3", str(tmp_path / "x.sqlite3")):
        write(project, {"db": outside})
        assert refusal(root).startswith(f"{project}: db: ")


def test_a_database_named_on_the_command_line_is_meant_from_there(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(root, db="x.sqlite3").database == Database(tmp_path / "x.sqlite3")
    assert load(root, {"BROKER_DB": "y.sqlite3"}).database == Database(tmp_path / "y.sqlite3")


ADDRESS = "postgresql://somebody:secret@example.org:6432/team reviews?sslmode=require&password=secret"


def test_a_database_server_is_named_without_its_password(root: Path) -> None:
    database = load(root, db=ADDRESS).database
    assert database.url == ADDRESS
    assert str(database) == "postgresql://somebody@example.org:6432/team reviews?sslmode=require&password=***"
    assert database.name == "team_reviews"
    assert not database.is_inside(root)
    assert str(Database(Path("x"), "postgres://example.org")) == "postgres://example.org"
    assert Database(Path("x"), "postgres:///?host=/tmp").name == "postgresql"


def test_a_broker_and_its_clients_agree_on_the_files_of_a_server(root: Path, tmp_path: Path) -> None:
    variables = {"BROKER_DB": ADDRESS, "BROKER_INSTANCE": "second"}
    second = load(root, variables).database
    assert locate(root, db=None, config=None, environment=variables).database == second
    first, elsewhere = load(root, db=ADDRESS).database, load(None, db=ADDRESS).database
    assert len({first.key, second.key, elsewhere.key}) == 3
    # The password may change.
    assert load(root, db=ADDRESS.replace("secret", "other")).database.key == first.key


def test_a_repository_cannot_choose_a_server(root: Path) -> None:
    project = in_project_file(root, {"db": ADDRESS})
    assert refusal(root).startswith(
        f"{project}: db: a repository must not choose a server; give postgresql://somebody@"
    )
    assert "secret" not in refusal(root)


def test_an_address_of_another_kind_is_refused(root: Path) -> None:
    message = "db: mysql:// is not supported; give a file's path, or postgresql://."
    assert refusal(root, db="mysql://somebody:secret@example.org/x") == f"command line: {message}"


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In no repository, with nothing in the environment."""
    for name in ("BROKER_HOST", "BROKER_PORT", "BROKER_DB", "BROKER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tandem_config_shows_every_value_and_where_it_comes_from(
    outside: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    user = in_user_file({"max_rounds": 7})
    monkeypatch.setenv("BROKER_LIMITS__DIFF_BYTES", "1000")
    assert main(["config", "--user", "--port", "1004"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = {line.split()[0]: " ".join(line.split()[1:]) for line in lines}
    assert shown["port"] == "1004 (command line)"
    assert shown["max_rounds"] == f"7 ({user})"
    assert shown["limits.diff_bytes"] == "1000 (environment)"
    assert shown["limits.text_bytes"] == "65536 (default)"
    assert shown["host"] == '"127.0.0.1" (default)'


def test_tandem_config_as_json_has_value_and_origin_of_every_setting(
    outside: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BROKER_PORT", "1003")
    assert main(["config", "--user", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["port"] == {"value": 1003, "from": "environment"}
    assert shown["fence"] == {"value": "strict", "from": "default"}
    assert shown["(serves)"]["value"] == "user"
    settings = Settings().model_dump()
    expected = {name for name, value in settings.items() if not isinstance(value, dict)}
    expected |= {f"{name}.{key}" for name, value in settings.items() if isinstance(value, dict) for key in value}
    assert {name for name in shown if not name.startswith("(")} == expected


def test_tandem_config_tells_what_is_wrong_and_exits_3(outside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = in_user_file({"port": -1})
    assert main(["config", "--user"]) == 3
    said = capsys.readouterr().err
    assert f"{file}: port: " in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("platform", "environment", "config_folder", "state_folder"),
    [
        ("linux", {}, "~/.config", "~/.local/state"),
        ("linux", {"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s"}, "/c", "/s"),
        ("darwin", {}, "~/Library/Application Support", "~/Library/Application Support"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local", "/local"),
    ],
)
def test_the_users_folders_are_where_the_platform_has_them(
    monkeypatch: pytest.MonkeyPatch,
    platform: str,
    environment: dict[str, str],
    config_folder: str,
    state_folder: str,
) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(locations, "sys", SimpleNamespace(platform=platform))
    assert config.user_file() == Path(config_folder).expanduser() / "gsd-review-broker" / "config.json"
    assert locations.state_folder() == Path(state_folder).expanduser() / "gsd-review-broker"
