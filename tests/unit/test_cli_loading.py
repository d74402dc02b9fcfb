"""From a name on the command line to a topology: files, modules, packages, wheels, and what can be wrong with them."""

from __future__ import annotations

import importlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import elastic
import statestore
from elastic.api.imports import imported
from elastic.control.cli.failures import CodeFailed
from elastic.control.cli.loading import Loaded, load
from elastic.control.cli.namesakes import USED, WANTED
from elastic.errors import ConfigError, TopologyError, UnknownComponent

SOURCE = """
import sys
from elastic import Bolt, Spout, TopologyBuilder

class Numbers(Spout):
    outputs = "n"
    def tuples(self):
        yield from range(3)

class Sink(Bolt):
    def execute(self, tup):
        pass

def topology(args):
    b = TopologyBuilder("-".join(["t", *args]))
    b.spout("numbers", Numbers())
    b.bolt("sink", Sink()).shuffle("numbers")
    return b.build()

def unfinished():
    b = TopologyBuilder("builder")
    b.spout("numbers", Numbers())
    b.bolt("sink", Sink()).shuffle("numbers")
    return b

def wrong():
    return 42

def raises(args):
    return deeper()

def deeper():
    return {}["key"]

def unknown():
    b = TopologyBuilder("x")
    b.spout("numbers", Numbers())
    b.bolt("sink", Sink()).shuffle("nobody")
    return b.build()

made = topology(["made"])
"""


@pytest.fixture(autouse=True)
def clean_imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    yield
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")) or "elastic-wheel" in str(
            getattr(sys.modules[name], "__file__", "")
        ):
            del sys.modules[name]


def put(path: Path, text: str = SOURCE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def name_of(loaded: Loaded) -> str:
    return loaded.topology.name


def test_a_file_gets_the_words_that_follow_it(tmp_path: Path) -> None:
    file = put(tmp_path / "job_a.py")
    loaded = load(str(file), ["--x", "1"])
    assert name_of(loaded) == "t---x-1"
    assert loaded.entry == file


def test_a_file_with_a_function_a_builder_and_a_finished_topology(tmp_path: Path) -> None:
    put(tmp_path / "job_b.py")
    assert name_of(load("job_b.py:unfinished", [])) == "builder"
    assert name_of(load("job_b.py:made", [])) == "t-made"


def test_a_file_finds_its_neighbours(tmp_path: Path) -> None:
    put(tmp_path / "jobs" / "neighbour_c.py")
    put(tmp_path / "jobs" / "job_c.py", "from neighbour_c import topology\n")
    assert name_of(load("jobs/job_c.py", [])) == "t"


def test_a_file_behind_a_link_finds_the_neighbours_of_both(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "beside_file.py").write_text("NAME = 'file'\n")
    (tmp_path / "beside_link.py").write_text("NAME = 'link'\n")
    source = (
        SOURCE + "\nimport beside_file, beside_link\nnames = topology([beside_file.NAME, beside_link.NAME])\n"
    )
    (tmp_path / "real" / "linked_job.py").write_text(source)
    (tmp_path / "linked_job.py").symlink_to(Path("real") / "linked_job.py")
    assert load(f"{tmp_path}/linked_job.py:names", ()).topology.name == "t-file-link"


def test_a_module_and_a_function_of_it(tmp_path: Path) -> None:
    put(tmp_path / "pack_d" / "__init__.py", "")
    put(tmp_path / "pack_d" / "jobs.py")
    assert name_of(load("pack_d.jobs", ["a"])) == "t-a"
    loaded = load("pack_d.jobs:unfinished", [])
    assert name_of(loaded) == "builder" and loaded.entry == "pack_d.jobs"


def test_a_package_directory(tmp_path: Path) -> None:
    put(tmp_path / "src" / "pack_e" / "__init__.py", "from .jobs import topology\n")
    put(tmp_path / "src" / "pack_e" / "jobs.py")
    loaded = load("src/pack_e", [])
    assert name_of(loaded) == "t" and loaded.entry == (tmp_path / "src" / "pack_e").resolve()
    assert name_of(load("src/pack_e:pack_e.jobs:unfinished", [])) == "builder"


def test_a_package_directory_behind_a_link_has_the_links_name(tmp_path: Path) -> None:
    put(tmp_path / "pack-k-1.0" / "__init__.py", "from pack_k.jobs import topology\n")
    put(tmp_path / "pack-k-1.0" / "jobs.py")
    (tmp_path / "pack_k").symlink_to("pack-k-1.0")
    loaded = load("./pack-k-1.0/../pack_k/", [])
    assert name_of(loaded) == "t" and loaded.entry == tmp_path / "pack_k"


def test_a_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "wheel_f-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("wheel_f/__init__.py", "")
        file.writestr("wheel_f/jobs.py", SOURCE)
        file.writestr("wheel_f-1.0.dist-info/METADATA", "Name: wheel_f\n")
    loaded = load(f"{wheel.name}:wheel_f.jobs", ["w"])
    assert name_of(loaded) == "t-w" and loaded.entry == wheel
    with pytest.raises(TopologyError, match="has no topology"):
        load(wheel.name, [])


@pytest.mark.parametrize("place", ["src/pack_l", "pack_l-1.0-py3-none-any.whl"])
def test_what_is_suggested_for_a_function_that_is_not_there_can_be_named(tmp_path: Path, place: str) -> None:
    put(tmp_path / "src" / "pack_l" / "__init__.py", "")
    put(tmp_path / "src" / "pack_l" / "jobs.py")
    with zipfile.ZipFile(tmp_path / "pack_l-1.0-py3-none-any.whl", "w") as file:
        file.writestr("pack_l/__init__.py", "")
        file.writestr("pack_l/jobs.py", SOURCE)
    with pytest.raises(TopologyError) as caught:
        load(f"{place}:pack_l.jobs:nope", [])
    suggested = str(caught.value.remedy).partition("name one as ")[2]
    assert suggested.startswith(f"{place}:pack_l.jobs:") and name_of(load(suggested, [])) == "t"
    with pytest.raises(TopologyError, match="pack_l has no topology") as caught:
        load(place, [])
    assert "__init__.py" in str(caught.value.remedy)
    suggested = str(caught.value.remedy).partition("that does: ")[2]
    assert name_of(load(suggested.replace("MODULE", "jobs"), [])) == "t"


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nothing.py", "no file nothing.py"),
        ("nothing.whl", "no file nothing.whl"),
        ("no_such_module_g", "no module no_such_module_g"),
        ("no such thing", "neither a Python file"),
        ("folder", "is not a package"),
        ("broken.whl", "not a wheel"),
        ("a.b.py", "no dot"),
        ("json.py", "name of a module that Python itself"),
        ("job_g.py:wrong", "returned int, not a topology"),
        ("job_g.py:nothing", "has no nothing"),
        ("job_g.py:raises", "KeyError"),
        ("syntax_g.py", "SyntaxError"),
        ("needs_g.py", "no_such_package_g"),
    ],
)
def test_what_cannot_be_loaded_is_a_topology_error(tmp_path: Path, target: str, says: str) -> None:
    put(tmp_path / "job_g.py")
    put(tmp_path / "a.b.py")
    put(tmp_path / "json.py")
    put(tmp_path / "syntax_g.py", "def topology(:\n")
    put(tmp_path / "needs_g.py", "import no_such_package_g\n")
    put(tmp_path / "folder" / "x.py")
    (tmp_path / "broken.whl").write_bytes(b"no zip")
    with pytest.raises(TopologyError) as caught:
        load(target, [])
    assert says in str(caught.value)


def test_a_near_name_is_suggested(tmp_path: Path) -> None:
    put(tmp_path / "word_count_h.py")
    with pytest.raises(TopologyError, match=r"Did you mean word_count_h\.py"):
        load("wordcount_h.py", [])


def test_a_file_of_a_package_that_needs_it_is_to_be_named_as_a_module(tmp_path: Path) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "job_r.py").write_text("from . import words\n")
    with pytest.raises(CodeFailed) as caught:
        load(str(package / "job_r.py"), [])
    assert caught.value.remedy.endswith("name it as a module: shop.job_r")


def test_the_users_traceback_has_only_the_users_frames(tmp_path: Path) -> None:
    put(tmp_path / "job_i.py")
    with pytest.raises(CodeFailed) as caught:
        load("job_i.py:raises", [])
    text = caught.value.user_traceback
    assert "in raises" in text and "in deeper" in text and "KeyError: 'key'" in text
    assert "elastic/control" not in text and "importlib" not in text


def test_errors_of_the_builder_point_at_the_users_line(tmp_path: Path) -> None:
    put(tmp_path / "job_j.py")
    with pytest.raises(UnknownComponent) as caught:
        load("job_j.py:unknown", [])
    text = str(getattr(caught.value, "user_traceback", ""))
    assert "return b.build()" in text and "builder.py" not in text


def test_a_value_that_cannot_be_is_told_by_its_message_alone(tmp_path: Path) -> None:
    put(
        tmp_path / "job_m.py",
        "from elastic import TextSpout\ndef topology(args):\n    TextSpout(args[0])\n",
    )
    with pytest.raises(ConfigError, match="no-such-file") as caught:
        load("job_m.py", ["no-such-file.txt"])
    assert not hasattr(caught.value, "user_traceback")


def test_arguments_for_what_takes_none(tmp_path: Path) -> None:
    put(tmp_path / "job_k.py")
    for target in ("job_k.py:unfinished", "job_k.py:made"):
        with pytest.raises(ConfigError, match="takes no arguments"):
            load(target, ["--input", "a"])


def test_the_end_of_the_topologys_own_help_passes_through(tmp_path: Path) -> None:
    put(
        tmp_path / "job_l.py",
        "import argparse\ndef topology(args):\n    argparse.ArgumentParser().parse_args(args)\n",
    )
    with pytest.raises(SystemExit) as caught:
        load("job_l.py", ["--help"])
    assert caught.value.code == 0


@pytest.mark.parametrize("name", ["colorsys", "grpc", "elastic"])
def test_a_file_named_like_a_module_that_may_be_imported_later_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / f"{name}.py").write_text(SOURCE)
    with pytest.raises(
        TopologyError, match=rf"^{name}\.py has the name of a module that .*\n +Rename the file"
    ):
        load(str(tmp_path / f"{name}.py"), [])


@pytest.mark.parametrize(
    "code",
    [
        "import quopri",
        "import json; json.mine",
        "from json import mine",
        "import json.mine",
        "import zoneinfo; zoneinfo.mine",  # pandas uses it as it is imported, which pyarrow does in a worker
        "import dateutil; dateutil.mine",  # and so it does with that
        "import typing_extensions; typing_extensions.mine",
    ],
)
def test_a_neighbour_is_refused_that_is_taken_for_a_module_that_elastic_needs_or_the_other_way_round(
    tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    importlib.import_module("quopri")  # to have it again afterwards
    monkeypatch.delitem(sys.modules, "quopri")
    names = ("quopri", "json", "zoneinfo", "dateutil", "typing_extensions")
    for name in (*names, "sched"):
        (tmp_path / f"{name}.py").write_text("mine = 1")
    (tmp_path / "job_m.py").write_text(f"{code}\n{SOURCE}")
    with pytest.raises(
        TopologyError, match=rf"/({'|'.join(names)})\.py has the name of a module that Python"
    ):
        load(str(tmp_path / "job_m.py"), [])


def test_a_neighbour_may_have_a_name_that_nobody_else_wants_or_not_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "colorsys"):
        (tmp_path / f"{name}.py").write_text("mine = 1")
    monkeypatch.setitem(sys.modules, "colorsys", ModuleType("colorsys"))  # to have that again afterwards
    monkeypatch.delitem(sys.modules, "colorsys")
    (tmp_path / "job_n.py").write_text(f"import colorsys, json\ncolorsys.mine, json.dumps\n{SOURCE}")
    load(str(tmp_path / "job_n.py"), [])
    (tmp_path / "job_o.py").write_text(f"import json\n1 / 0\n{SOURCE}")
    with pytest.raises(TopologyError, match="ZeroDivisionError"):
        load(str(tmp_path / "job_o.py"), [])


def test_a_neighbour_that_is_not_imported_is_not_found_in_place_of_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    importlib.import_module("quopri")  # to have it again afterwards
    monkeypatch.delitem(sys.modules, "quopri")
    (tmp_path / "quopri.py").write_text("mine = 1")
    (tmp_path / "job_p.py").write_text(SOURCE)
    load(str(tmp_path / "job_p.py"), [])
    assert hasattr(importlib.import_module("quopri"), "encode")


def test_a_neighbour_may_have_the_name_of_a_module_that_python_has_no_more(tmp_path: Path) -> None:
    """`asyncore`: from 3.12 on."""
    (tmp_path / "asyncore.py").write_text("mine = 1")
    (tmp_path / "job_q.py").write_text(SOURCE)
    load(str(tmp_path / "job_q.py"), [])


def test_the_modules_that_elastic_imports_are_known() -> None:
    folders = [Path(p.__file__).parent for p in (elastic, statestore)]
    needed = {name for folder in folders for file in folder.rglob("*.py") for name, _ in imported(file)}
    assert needed - sys.stdlib_module_names <= USED
    assert {n for n in needed & sys.stdlib_module_names if not n.startswith("_")} <= WANTED
