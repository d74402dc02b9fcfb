"""Help, laziness, documentation and exit codes of the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import click
import pytest
import yaml
from cli_fake import FakeClient, invoke

from elastic import errors
from elastic.control.cli import failures
from elastic.control.cli.app import SECTIONS, app
from elastic.control.cli.base import Command, LazyGroup
from elastic.control.cli.settings import SHARED, Settings

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"


def all_commands(group: LazyGroup = app, prefix: str = "elastic") -> dict[str, Command]:
    found: dict[str, Command] = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, LazyGroup):
            found |= all_commands(command, f"{prefix} {name}")
        else:
            assert isinstance(command, Command)
            found[f"{prefix} {name}"] = command
    return found


COMMANDS = all_commands()


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_teaches(path: str) -> None:
    command = COMMANDS[path]
    assert command.help
    assert command.examples, "a command shows how it is used"
    for line, _ in command.examples:
        assert "elastic" in line
    known = {p.removeprefix("elastic ") for p in COMMANDS} | {"nodes"}
    assert set(command.see) <= known - {path.removeprefix("elastic ")}
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, f"{option.name} has no help"
    result = invoke(None, *path.split()[1:], "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.stdout
    assert "[default: (" not in result.stdout, "as if it were worked out"
    for kind, says in (" TIME ", "a bare number is seconds"), (" SIZE ", "a number of bytes"):
        assert (kind in result.stdout) == (says in result.stdout), "an argument's unit is told"


def test_the_list_says_what_the_commands_say_themselves() -> None:
    for commands in SECTIONS.values():
        for name, lazy in commands.items():
            command = app.get_command(click.Context(app), name)
            assert command is not None
            first = (command.short_help or command.help or "").partition("\n")[0]
            assert first == lazy.summary, name


def test_help_of_the_whole_lists_every_command() -> None:
    result = invoke(None, "--help")
    assert result.exit_code == 0
    for commands in SECTIONS.values():
        for name, lazy in commands.items():
            assert re.search(rf"^  {name} +{re.escape(lazy.summary)}$", result.stdout, re.MULTILINE), name


def test_help_loads_no_heavy_package() -> None:
    heavy = ("grpc", "kazoo", "pyspark", "pyarrow", "pandas", "rich", "yaml", "google.protobuf", "lmdb")
    code = (
        "import sys\nfrom elastic.control.cli.app import app\n"
        "try:\n    app.main(['--help'], prog_name='elastic')\nexcept SystemExit as end:\n    assert end.code == 0\n"
        f"print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.strip() == "[]"


def test_unknown_command_is_a_usage_error_that_names_the_near_one() -> None:
    result = invoke(None, "lst")
    assert result.exit_code == failures.USAGE
    assert "list" in result.stderr and result.stdout == ""


def test_the_version_is_where_people_look_for_it() -> None:
    said = invoke(None, "--version")
    assert (said.exit_code, said.stdout) == (0, invoke(None, "version").stdout) and said.stdout.strip()


def test_without_command_the_help_is_shown() -> None:
    assert "Topologies:" in invoke(None).output


def tree(root: type[errors.ElasticError]) -> list[type[errors.ElasticError]]:
    return [
        root,
        *(c for sub in root.__subclasses__() if sub.__module__ == "elastic.errors" for c in tree(sub)),
    ]


def documented_codes() -> dict[str, int]:
    """Class name -> code, from the table of exit codes in docs/cli.md."""
    found: dict[str, int] = {}
    for code, names in re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]*) \|$", DOCUMENT.read_text(), re.MULTILINE):
        for name in re.findall(r"`(\w+)`", names):
            found[name] = int(code)
    return found


def test_documented_exit_codes_are_those_of_the_errors() -> None:
    codes = documented_codes()
    for error in tree(errors.ElasticError):
        assert codes.get(error.__name__) == error.exit_code, error.__name__
    others = {int(c) for c in re.findall(r"^\| (\d+) \|", DOCUMENT.read_text(), re.MULTILINE)}
    assert {0, failures.UNEXPECTED, failures.USAGE, failures.INTERRUPTED, failures.BROKEN_PIPE} <= others


@pytest.mark.parametrize("error", tree(errors.ElasticError), ids=lambda e: e.__name__)
def test_every_error_ends_with_its_code_and_its_remedy(error: type[errors.ElasticError]) -> None:
    client = FakeClient(fail=error("It did not work.", remedy="Try this."))
    result = invoke(client, "list")
    assert result.exit_code == error.exit_code
    assert "It did not work." in result.stderr and "Try this." in result.stderr
    assert result.stdout == "" and "Traceback" not in result.stderr


def test_verbose_shows_where_in_elastic_it_happened() -> None:
    result = invoke(FakeClient(fail=errors.NotFound("planted")), "list", "-v")
    assert result.exit_code == 4 and "Traceback" in result.stderr and "planted" in result.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = [sys.executable, "-m", "elastic.control.cli", "run", "--help"]
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone:
        done = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode in (0, failures.BROKEN_PIPE) and done.stderr == ""
    code = "from elastic.control.cli.app import app\nfrom cli_fake import FakeClient\n"
    code += "from elastic.control.cli.settings import Connector\n"
    code += "app.main(['list'], prog_name='elastic', obj=Connector(lambda s, t: FakeClient()))"
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        )
    assert done.returncode == failures.BROKEN_PIPE and done.stderr == ""


def test_a_command_to_copy_is_one_for_the_shell(tmp_path: Path) -> None:
    result = invoke(None, "--cluster", "my test", "down", "--home", str(tmp_path))
    assert result.exit_code == 0 and "my test was not running" in result.stderr
    settings = Settings(home=tmp_path / "a b", cluster="my test")
    assert settings.command("up") == f"elastic --cluster 'my test' --home '{tmp_path}/a b' up"
    assert (
        Settings(home=tmp_path, address="[::1]:7000").command("list") == "elastic --address '[::1]:7000' list"
    )


@pytest.mark.parametrize("closed", [">&-", "<&- 2>&-"])
def test_a_stream_that_is_closed_is_no_error(closed: str) -> None:
    for words, code in ("version", 0), ("kill word-count --home /nowhere", 7):
        line = f'exec "$0" -m elastic.control.cli {words} {closed}'
        done = subprocess.run(["sh", "-c", line, sys.executable], capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_where_there_is_no_room_to_write_the_machine_lacks_something(unbuffered: str) -> None:
    command = [sys.executable, "-m", "elastic.control.cli", "version"]
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, env=env)
    assert done.returncode == errors.EnvironmentProblem.exit_code
    assert done.stderr.startswith("error: No space left on device\n")
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("words", ["--home here list", "run job.py"])
def test_in_a_directory_that_has_been_removed_it_is_that_which_is_said(words: str, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    line = f'cd gone && rmdir ../gone && exec "$0" -m elastic.control.cli {words}'
    env = {**os.environ, "PYTHONPATH": str(Path(errors.__file__).parents[1])}
    command = ["sh", "-c", line, sys.executable]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == errors.EnvironmentProblem.exit_code
    assert done.stderr == "error: the present directory has been removed\n  Go to another one.\n"


@pytest.mark.parametrize("encoding", ["iso-8859-15", "utf-8:strict"])
def test_text_that_the_locale_cannot_write_is_escaped(encoding: str, tmp_path: Path) -> None:
    def said(*words: str) -> str:
        command = [sys.executable, "-m", "elastic.control.cli", *words]
        env = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run(command, capture_output=True, timeout=60, env=env)
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr.decode()
        return done.stdout.decode("ascii" if "-o" in words else encoding.partition(":")[0])

    assert "Examples" in said("up", "--help")
    home = f"{tmp_path}/\u20ac\u4e2d\U0001f600" if encoding != "utf-8:strict" else f"{tmp_path}/\udcff"
    for form, read in ("json", json.loads), ("yaml", yaml.safe_load):
        checks = {c["check"]: c["message"] for c in read(said("doctor", "-o", form, "--home", home))}
        assert checks["home"].startswith(f"{home} ")


def test_an_unexpected_error_is_1_and_shows_the_traceback() -> None:
    result = invoke(FakeClient(fail=RuntimeError("planted")), "list")
    assert result.exit_code == failures.UNEXPECTED
    assert "Traceback" in result.stderr and "planted" in result.stderr


def test_ctrl_c_is_130_also_while_a_class_is_made() -> None:
    """Python 3.11 has a RuntimeError of it then."""
    error = RuntimeError("Error calling __set_name__")
    error.__cause__ = KeyboardInterrupt()
    result = invoke(FakeClient(fail=error), "list")
    assert result.exit_code == failures.INTERRUPTED
    assert result.stderr == "interrupted\n"


def test_ctrl_c_is_130_and_says_what_goes_on() -> None:
    result = invoke(FakeClient(fail=KeyboardInterrupt()), "kill", "word-count")
    assert result.exit_code == failures.INTERRUPTED
    assert "Nimbus, once told, goes on killing word-count" in result.stderr


def test_ctrl_c_within_a_finaliser_is_not_lost() -> None:
    class Slow:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    class Client(FakeClient):
        def kill(self, name: str, *, wait: float) -> None:
            Slow()
            assert not threading.Event().wait(60), "nothing came of Ctrl-C"

    result = invoke(Client(), "kill", "word-count")
    assert result.exit_code == failures.INTERRUPTED
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_and_option_is_documented(path: str) -> None:
    text = DOCUMENT.read_text()
    match = re.search(rf"^### `{path}[` ](.*?)(?=^### |^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert match, f"docs/cli.md has no section ### `{path} ...`"
    for option in COMMANDS[path].params:
        if isinstance(option, click.Option) and option.name not in SHARED:
            assert max(option.opts, key=len) in match[1], f"{path}: {option.opts} is not documented"


def test_shared_options_are_taken_before_and_after_the_command() -> None:
    for words in (("-o", "json", "list"), ("list", "-o", "json")):
        result = invoke(FakeClient(), *words)
        assert result.exit_code == 0 and result.stdout.startswith("[")
    assert invoke(FakeClient(), "-o", "yaml", "list", "-o", "json").stdout.startswith("["), "the later wins"


@pytest.mark.parametrize("words", [("--cluster", "a/b"), ("--cluster", ".."), ("--address", "nowhere")])
def test_impossible_names_of_clusters_are_usage_errors(words: tuple[str, ...]) -> None:
    assert invoke(FakeClient(), *words, "list").exit_code == failures.USAGE
