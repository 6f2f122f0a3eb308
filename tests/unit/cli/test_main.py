"""What goes to standard error is text: nothing in it moves the terminal."""

import argparse
import errno
import json

import pytest

from gsd_review_broker.cli import main
from gsd_review_broker.errors import BrokerError, Code, StartError

ODD = "a\x1b[2Jb\x9bc\u202ed"


def failing(error: Exception) -> argparse.Namespace:
    def run(_: argparse.Namespace) -> int:
        raise error

    return argparse.Namespace(run=run)


@pytest.mark.parametrize("error", [BrokerError(Code.CONFLICT, ODD, ODD), StartError(ODD), OSError(5, ODD)])
def test_an_error_is_printed_without_its_control_characters(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "_close_output", lambda: None)
    assert main._run(failing(error)) != 0
    printed = capsys.readouterr().err
    assert "b" in printed
    assert not set(printed) & set("\x1b\x9b\u202e")


@pytest.mark.parametrize("words", [["propose", "-m", "x", "--as", "eve"], ["gate", "status", "--as", "eve"]])
def test_an_option_that_a_command_does_not_have_is_told_with_the_usage_of_that_command(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main.main(words)
    assert exit_.value.code == 2
    printed = capsys.readouterr().err
    command = "gate status" if words[0] == "gate" else words[0]
    assert printed.startswith(f"usage: tandem {command} ")
    assert "unrecognized arguments: --as eve" in printed


@pytest.mark.parametrize("as_json", [False, True])
def test_a_file_that_cannot_be_written_is_told_with_its_name_and_what_to_look_at(
    as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    options = failing(OSError(errno.EROFS, "Read-only file system", "/home/ada/.local"))
    options.json = as_json
    assert main._run(options) == 3
    printed = capsys.readouterr()
    if as_json:
        error = json.loads(printed.out)["error"]
        assert (error["code"], error["message"]) == ("unavailable", "/home/ada/.local: Read-only file system")
    else:
        first, second = printed.err.splitlines()
        assert first == "tandem: unavailable: /home/ada/.local: Read-only file system"
        assert second.startswith("Look at the permissions")
