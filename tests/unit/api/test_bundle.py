"""Code bundles: which of the user's modules travel, under which names, and what must be installed instead."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from elastic import Fields, Spout, TopologyBuilder
from elastic.api.builder import Topology
from elastic.api.bundle import ShippedComponents, build_bundle, load_bundle
from elastic.api.imports import collect
from elastic.errors import NotShippable
from elastic.supervisor.bundles import unpack

USES_HELPER = "import own_helper\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's code lies, as `elastic submit FILE` makes it importable."""
    made = tmp_path / "src"
    made.mkdir()
    monkeypatch.syspath_prepend(made)
    return made


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def found(entry: Path | str) -> tuple[list[str], tuple[str, ...]]:
    needs = collect([entry])
    return sorted(needs.files), needs.requires


def entry(folder: Path, text: str) -> Path:
    write(folder, {"own_jobs.py": text})
    return folder / "own_jobs.py"


class Source(Spout):
    outputs = Fields(line=str)

    def tuples(self) -> Any:
        return iter(())


def topology() -> Topology:
    b = TopologyBuilder("t")
    b.spout("source", Source())
    return b.build()


# ---------------------------------------------------------------- names and links


def test_a_module_behind_a_link_is_shipped_under_the_name_it_is_imported_by(folder: Path) -> None:
    write(folder, {"own_helper_v2.py": ""})
    (folder / "own_helper.py").symlink_to("own_helper_v2.py")
    assert found(entry(folder, USES_HELPER)) == (["own_helper.py", "own_jobs.py"], ())


def test_a_package_behind_a_link_is_shipped_under_the_name_it_is_imported_by(folder: Path) -> None:
    write(folder, {"own-helper-1.0/__init__.py": ""})
    (folder / "own_helper").symlink_to("own-helper-1.0")
    assert found(entry(folder, USES_HELPER)) == (["own_helper/__init__.py", "own_jobs.py"], ())


def test_an_entry_behind_a_link_is_shipped_under_its_own_name(folder: Path, tmp_path: Path) -> None:
    write(folder, {"own_jobs_v3.py": ""})
    (folder / "own_jobs.py").symlink_to("own_jobs_v3.py")
    made = build_bundle(topology(), folder / "own_jobs.py", tmp_path / "b.zip")
    with zipfile.ZipFile(made.path) as file:
        assert "code/own_jobs.py" in file.namelist() and "code/own_jobs_v3.py" not in file.namelist()


def test_folders_behind_links_in_a_package_are_shipped_and_circles_of_them_end(folder: Path) -> None:
    write(folder, {"own_pkg/__init__.py": "", "elsewhere/__init__.py": "", "elsewhere/part.py": ""})
    (folder / "own_pkg/one").symlink_to("../elsewhere")
    (folder / "own_pkg/two").symlink_to("../elsewhere")
    (folder / "elsewhere/back").symlink_to("../own_pkg")
    files, _ = found("own_pkg")
    inside = ["__init__.py", "one/__init__.py", "one/part.py", "two/__init__.py", "two/part.py"]
    assert files == [f"own_pkg/{name}" for name in inside]


# ---------------------------------------------------------------- packages without an __init__.py


def test_a_package_without_init_is_shipped_from_all_its_folders(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, {"own_space/one.py": "", "own_space/sub/both.py": "FIRST = 1"})
    write(tmp_path, {"more/own_space/two.py": "", "more/own_space/sub/both.py": "FIRST = 2"})
    monkeypatch.syspath_prepend(tmp_path / "more")
    monkeypatch.syspath_prepend(folder)
    needs = collect([entry(folder, "from own_space import one, two\n")])
    names = ["own_jobs.py", "own_space/one.py", "own_space/sub/both.py", "own_space/two.py"]
    assert (sorted(needs.files), needs.requires) == (names, ())
    assert needs.files["own_space/sub/both.py"].read_text() == "FIRST = 1"


def test_a_package_without_init_can_be_the_entry(folder: Path) -> None:
    write(folder, {"own_space/jobs.py": USES_HELPER, "own_helper.py": ""})
    assert found("own_space.jobs") == (["own_helper.py", "own_space/jobs.py"], ())


def test_environments_in_a_package_are_not_shipped(folder: Path) -> None:
    write(folder, {"own_space/jobs.py": "", "own_space/env/pyvenv.cfg": "", "own_space/env/bin/python": ""})
    assert found("own_space.jobs") == (["own_space/jobs.py"], ())


def test_of_a_wheel_everything_is_shipped_that_would_be_installed(tmp_path: Path) -> None:
    wheel = tmp_path / "own-1.0-py3-none-any.whl"
    inside = ["own_space/jobs.py", "own_module.py", "own.libs/lib.so"]
    with zipfile.ZipFile(wheel, "w") as file:
        for name in [*inside, "own-1.0.dist-info/METADATA", "own-1.0.data/scripts/run"]:
            file.writestr(name, "")
    made = build_bundle(topology(), wheel, tmp_path / "b.zip")
    with zipfile.ZipFile(made.path) as file:
        names = [n for n in file.namelist() if n.startswith("code/own")]
    assert sorted(names) == sorted(f"code/{n}" for n in inside)


# ---------------------------------------------------------------- imports


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    import own_helper, no_such_module\nexcept ImportError:\n    pass\n",
        "def f():\n    try:\n        from own_helper import x\n        import no_such_module\n    except Exception:\n        x = 1\n",
    ],
    ids=["at the top", "in a function"],
)
def test_what_may_be_missing_is_shipped_where_it_is_the_users_and_never_required(
    folder: Path, text: str
) -> None:
    write(folder, {"own_helper.py": ""})
    assert found(entry(folder, text)) == (["own_helper.py", "own_jobs.py"], ())


@pytest.mark.parametrize(
    "test",
    [
        "sys.version_info >= (3, 99)",
        "sys.platform == 'win32'",
        "os.name == 'nt' and not sys.flags.dev_mode",
        "__name__ == '__main__'",
    ],
)
def test_what_is_imported_in_some_places_only_is_not_required_everywhere(folder: Path, test: str) -> None:
    write(folder, {"own_helper.py": ""})
    text = f"if {test}:\n    import no_such_module, own_helper\nelse:\n    import no_such_other\nimport no_such_third\n"
    assert found(entry(folder, text)) == (["own_helper.py", "own_jobs.py"], ("no_such_third",))


@pytest.mark.parametrize(
    "call", ["importlib.import_module({!r})", "import_module({!r})", "x = __import__({!r}, fromlist=['y']).y"]
)
def test_what_is_imported_by_a_call_with_its_name_is_shipped_and_never_required(
    folder: Path, call: str
) -> None:
    write(folder, {"own_helper/__init__.py": "", "own_helper/part.py": ""})
    names = ("own_helper.part", "no_such_module", ".part", "")
    text = "def f(name):\n" + "".join(f"    {call.format(n)}\n" for n in names) + "    import_module(name)\n"
    assert found(entry(folder, text)) == (["own_helper/__init__.py", "own_helper/part.py", "own_jobs.py"], ())


def test_programs_that_a_package_brings_along_can_be_run_where_they_come(
    folder: Path, tmp_path: Path
) -> None:
    write(folder, {"own_tools/__init__.py": "", "own_tools/tool.sh": "#!/bin/sh\n"})
    (folder / "own_tools" / "tool.sh").chmod(0o755)
    made = build_bundle(topology(), entry(folder, "import own_tools\n"), tmp_path / "b.zip")
    unpack(made.path, tmp_path / "there")
    code = tmp_path / "there" / "code" / "own_tools"
    assert os.access(code / "tool.sh", os.X_OK) and not os.access(code / "__init__.py", os.X_OK)


def test_what_is_imported_with_and_without_try_is_required(folder: Path) -> None:
    text = "try:\n    import no_such_module\nexcept ImportError:\n    pass\nimport no_such_module\n"
    assert found(entry(folder, text)) == (["own_jobs.py"], ("no_such_module",))


@pytest.mark.parametrize(
    "text",
    [
        "if not TYPE_CHECKING:\n    import no_such_module\n",
        "if TYPE_CHECKING:\n    import no_such_types\nelse:\n    import no_such_module\n",
        "if typing.TYPE_CHECKING:\n    import no_such_types\nimport no_such_module\n",
        "try:\n    import no_such_types\nexcept ImportError:\n    pass\nelse:\n    import no_such_module\n",
    ],
)
def test_only_what_is_for_type_checkers_alone_is_left_out(folder: Path, text: str) -> None:
    assert found(entry(folder, text)) == (["own_jobs.py"], ("no_such_module",))


@pytest.mark.parametrize("name", ["site-packages", "dist-packages"])
def test_what_was_installed_elsewhere_than_here_is_required(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, {f"lib/{name}/own_helper/__init__.py": "", f"lib/{name}/own_helper.libs/lib.so": ""})
    monkeypatch.syspath_prepend(folder / "lib" / name)
    (folder / "cache.py").write_text("")
    (folder / f"lib/{name}/own_link.py").symlink_to("../../cache.py")
    jobs = entry(folder, USES_HELPER + "import own_link\n")
    assert found(jobs) == (["own_jobs.py"], ("own_helper", "own_link"))


def test_a_module_with_a_name_of_the_standard_library_is_shipped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "this", raising=False)
    jobs = entry(folder, "import json, os, sys, this, own_space\n")
    assert found(jobs) == (["own_jobs.py"], ("own_space",))
    write(folder, {"this.py": ""})
    assert found(jobs) == (["own_jobs.py", "this.py"], ("own_space",))


def test_what_lies_in_an_archive_is_refused_with_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the modules of a zipapp do, and what `spark-submit --py-files` was given."""
    archive = folder / "app.pyz"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("own_zipped.py", "")
        file.writestr("own_pack/__init__.py", "")
    monkeypatch.syspath_prepend(archive)
    for name in ("own_zipped", "own_pack"):
        with pytest.raises(
            NotShippable, match=rf"^{name} cannot be sent .* archive, .*/app\.pyz\."
        ) as caught:
            found(entry(folder, f"import {name}\n"))
        assert "Unpack" in caught.value.remedy


# ---------------------------------------------------------------- files


def test_what_is_no_python_is_shipped_with_its_package_unless_it_is_the_entry(folder: Path) -> None:
    write(folder, {"own_pkg/__init__.py": "", "own_pkg/template.py": "import {{ name }}\n"})
    assert found("own_pkg")[0] == ["own_pkg/__init__.py", "own_pkg/template.py"]
    with pytest.raises(NotShippable, match=r"template\.py cannot be read as Python"):
        found(folder / "own_pkg/template.py")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere such a name cannot be given to a file")
def test_a_file_whose_name_is_not_utf8_is_named(folder: Path) -> None:
    write(folder, {"own_pkg/__init__.py": "", os.fsdecode(b"own_pkg/caf\xe9.txt"): ""})
    with pytest.raises(NotShippable, match=r"own_pkg/caf\\udce9\.txt' .* not UTF-8"):
        found("own_pkg")


# ---------------------------------------------------------------- made in this process

SCRIPT = """
import sys
from pathlib import Path
from elastic import Bolt, Fields, FlatMap, Spout, TopologyBuilder
from elastic.api.bundle import ShippedComponents, build_bundle
import own_helper, own_functions

class S(Spout):
    outputs = Fields(w=str)
    def tuples(self):
        yield "a"

class B(Bolt):
    outputs = Fields(w=str)
    def execute(self, tup):
        self.emit(own_helper.help(tup.w))

b = TopologyBuilder("t")
b.spout("s", S())
b.bolt("b", B()).shuffle("s")
b.bolt("f", FlatMap(own_functions.split, w=str)).shuffle("b")
build_bundle(b.build(), None, Path(sys.argv[1]))
"""
IN_FUNCTION = SCRIPT.replace("        self.emit(", "        import own_late\n        self.emit(")


@pytest.mark.parametrize("notebook", [False, True], ids=["script", "without a file"])
def test_what_a_script_uses_is_shipped(folder: Path, notebook: bool) -> None:
    write(
        folder,
        {
            "own_helper.py": "def help(word):\n    return word\n",
            "own_functions.py": "def split(tup):\n    yield tup.w\n",
            "own_late.py": "",
            "script.py": IN_FUNCTION,
        },
    )
    how = ["-c", SCRIPT] if notebook else ["script.py"]
    path = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, *how, "b.zip"], cwd=folder, env={**os.environ, "PYTHONPATH": path}, check=True
    )
    with zipfile.ZipFile(folder / "b.zip") as file:
        names = {n for n in file.namelist() if n.startswith("code/")}
    late = set() if notebook else {"code/own_late.py"}
    assert names == {"code/own_helper.py", "code/own_functions.py"} | late


CLASSES = """
import enum, sys
from collections import namedtuple
from dataclasses import dataclass, field
from pathlib import Path
from elastic import Fields, KeyedState, StatefulBolt, TextSpout, TopologyBuilder
from elastic.api.bundle import build_bundle

class Color(enum.Enum):
    RED = 1

Pair = namedtuple("Pair", "a b")

@dataclass
class Sum:
    parts: list = field(default_factory=list)

class Adds(StatefulBolt):
    outputs = Fields(pair=object)
    sums = KeyedState(Sum)
    def execute(self, tup):
        self.sums[Color.RED].parts.append(tup.line)
        self.emit(Pair(1, Color.RED))

b = TopologyBuilder("t")
b.spout("s", TextSpout("a.txt"))
b.bolt("b", Adds()).fields("s", "line")
build_bundle(b.build(), None, Path(sys.argv[1]))
"""
WORKER = """
import pickle, sys
from pathlib import Path
from elastic.api.bundle import load_bundle
from elastic.testing import BoltTester

tester = BoltTester(load_bundle(Path(sys.argv[1])).component("b"))
for line in "ab":
    for made, in tester.execute(line=line):
        read = pickle.loads(pickle.dumps(made))
        assert read == made and type(read) is type(made) and read.b is made.b
    tester.move()
print([(color.name, type(sum).__name__, sum.parts) for color, sum in tester.component.sums.items()])
"""


def ran(folder: Path, *what: str) -> str:
    """What a script that has no file writes."""
    path = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", *what],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


def in_worker(folder: Path, script: str, worker: str) -> str:
    """What a process writes that has loaded the bundle that a script has made."""
    write(folder, {"a.txt": ""})
    ran(folder, script, "b.zip")
    with zipfile.ZipFile(folder / "b.zip") as file:
        file.extractall(folder / "b")
    return ran(folder, worker, "b")


DISPATCHES = """
import functools, sys
from pathlib import Path
from elastic import Fields, Spout, TopologyBuilder
from elastic.api.bundle import build_bundle

class Own:
    @functools.singledispatchmethod
    def of(self, made):
        return "?"

    @of.register
    def _(self, made: int):
        return "i"

@functools.singledispatch
def shown(made):
    return "?"

@shown.register
def _(made: list):
    return "".join(map(shown, made))

@shown.register
def _(made: Own):
    return made.of(1)

@shown.register(str)
def text(made):
    return shown([made.encode()])

class S(Spout):
    outputs = Fields(w=str)
    def tuples(self):
        yield shown([1, Own(), "a", [Own()]])

b = TopologyBuilder("t")
b.spout("s", S())
build_bundle(b.build(), None, Path(sys.argv[1]))
"""
DISPATCHED = """
import sys
from pathlib import Path
from elastic.api.bundle import load_bundle

print(*load_bundle(Path(sys.argv[1])).component("s").tuples())
"""


def test_functions_of_a_script_that_choose_by_type_are_sent_with_all_that_is_registered(folder: Path) -> None:
    assert in_worker(folder, DISPATCHES, DISPATCHED) == "?i?i\n"


SORTS = """
import functools, sys
from pathlib import Path
from elastic import Fields, Spout, TopologyBuilder
from elastic.api.bundle import build_bundle

by_size = functools.cmp_to_key(lambda a, b: len(a) - len(b))
SMALL = by_size("ab")

class S(Spout):
    outputs = Fields(w=object)
    def tuples(self):
        yield max(["a", "cdef", "b"], key=by_size), by_size("a") < SMALL, SMALL.obj

b = TopologyBuilder("t")
b.spout("s", S())
build_bundle(b.build(), None, Path(sys.argv[1]))
"""


def test_what_a_script_sorts_by_is_sent(folder: Path) -> None:
    assert in_worker(folder, SORTS, DISPATCHED) == "('cdef', True, 'ab')\n"


ANNOTATED = """
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Generic, NewType, ParamSpec, TypedDict, TypeVarTuple
from elastic import Fields, Spout, TopologyBuilder
from elastic.api.bundle import build_bundle
{made}
class S(Spout):
    outputs = Fields(w=object)
    def tuples(self):
        yield shown("a")

b = TopologyBuilder("t")
b.spout("s", S())
build_bundle(b.build(), None, Path(sys.argv[1]))
"""
TYPES = """
import typing_extensions
User = NewType("User", str)
T = typing_extensions.TypeVar("T", infer_variance=True)
Ts = TypeVarTuple("Ts")
P = ParamSpec("P")

class Of(Generic[*Ts]):
    pass

class Row(TypedDict, total=False):
    user: User

class Long(Row):
    n: int

class One(Generic[T]):
    pass

def shown(made: User, of: Of[int, str] | None = None, call: Callable[P, User] = lambda: "b") -> Long:
    assert One[int].__args__ == (int,)
    return User(made) + call(), Long(n=1), *Long.__required_keys__, *Long.__optional_keys__
"""
ALIASES = """
type Json = dict[str, Json] | list[Json] | str
type Pair[T] = tuple[T, T]
type Unknown = list[for_type_checkers_alone]

class Of[*Ts, **P]:
    type Me = list[Of]
    def me(self) -> Me:
        return [self]

def shown(made: Json, pair: Pair[int] | None = None) -> Unknown:
    return len(Of().me()), Json.__value__.__args__[1].__args__[0] is Json, Pair.__value__.__origin__ is tuple
"""
DEFAULTS = """
from typing import Generic, ParamSpec, TypeVar, TypeVarTuple, Unpack
T, P = TypeVar("T", bound=str, default=str), ParamSpec("P", default=[int])
Ts = TypeVarTuple("Ts", default=Unpack[tuple[int, str]])

class Old(Generic[T]):
    pass

class New[A, B: float = int, *Cs = *tuple[T]]:
    pass

class Node[N = Node]:
    pass

class Other[T: Other = Other, U: (int, Node) = int]:
    pass

def shown(x: Old[str] | None = None) -> None:
    old, new, (o, u) = Old[()], New[bytes], Other.__type_params__
    assert o.__bound__ is o.__default__ is Other and u.__constraints__ == (int, Node) and u.__default__ is int
    return old.__args__, new.__args__, (T.__bound__, P.__default__, Ts.has_default(), Node.__name__)
"""
BOUNDS = """
class Node[T: Node, Key: (Node, str)]:
    pass

class Of[T: for_type_checkers_alone, Either: (for_type_checkers_alone, int)]:
    pass

def shown(made: Node | None = None) -> Of[int, str]:
    (t, key), (of, either) = Node.__type_params__, Of.__type_params__
    return t.__bound__ is Node, key.__constraints__ == (Node, str), (of.__bound__, either.__bound__)
"""
DEFAULTS_SAID = "((<class 'str'>,), (<class 'bytes'>, <class 'int'>, ~T), (<class 'str'>, [<class 'int'>], True, 'Node'))\n"
from_3_12 = pytest.mark.skipif(sys.version_info < (3, 12), reason="new in Python 3.12")
from_3_13 = pytest.mark.skipif(sys.version_info < (3, 13), reason="new in Python 3.13")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (TYPES, "('ab', {'n': 1}, 'n', 'user')\n"),
        pytest.param(ALIASES, "(1, True, True)\n", marks=from_3_12),
        pytest.param(BOUNDS, "(True, True, (typing.Any, typing.Any))\n", marks=from_3_12),
        pytest.param(DEFAULTS, DEFAULTS_SAID, marks=from_3_13),
    ],
)
def test_what_a_script_annotates_with_is_sent(folder: Path, made: str, said: str) -> None:
    assert in_worker(folder, ANNOTATED.format(made=made), DISPATCHED) == said


@pytest.mark.parametrize(("makes", "other"), [("FlatMap(lambda tup: [tup.w], w=str)", True), ("B()", False)])
def test_functions_that_travel_run_with_the_same_python_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, makes: str, other: bool
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = f"own_job_{other}"
    write(folder, {f"{name}.py": JOB.format(makes=makes)})
    build_bundle(importlib.import_module(name).topology().build(), folder / f"{name}.py", folder / "b.zip")
    with zipfile.ZipFile(folder / "b.zip") as file:
        file.extractall(folder / "b")
    assert load_bundle(folder / "b").component("b") is not None
    monkeypatch.setattr("elastic.api.bundle._PYTHON", "4.0")
    if other:
        with pytest.raises(NotShippable, match=r"Python 3\..* has Python 4\.0.*lambdas.*module"):
            load_bundle(folder / "b")
    else:
        assert load_bundle(folder / "b").component("b") is not None, "which is there by its name"


JOB = """
from elastic import Bolt, Fields, FlatMap, Spout, TopologyBuilder

class S(Spout):
    outputs = Fields(w=str)
    def tuples(self):
        yield "a"

class B(Bolt):
    def execute(self, tup):
        pass

def topology():
    b = TopologyBuilder("t")
    b.spout("s", S())
    b.bolt("b", {makes}).shuffle("s")
    return b
"""


ENUMS = """
import dataclasses, enum, sys
from pathlib import Path
from elastic import Fields, Spout, TopologyBuilder
from elastic.api.bundle import build_bundle

class Planet(enum.Enum):
    EARTH = (3, 4)
    WORLD = (3, 4)
    def __init__(self, mass, radius):
        self.mass, self.radius = mass, radius

class Unit(str, enum.Enum):
    METRE = ("m", "length")
    def __new__(cls, short, of):
        made = str.__new__(cls, short)
        made._value_, made.of = short, of
        return made

@dataclasses.dataclass(frozen=True)
class Size:
    bytes: int = 0

class Page(Size, enum.Enum):
    SMALL = 7

class May(enum.Flag):
    READ = 1
    WRITE = 2
    ALL = READ | WRITE

class Does(enum.Enum):
    NOTHING = None
    @enum.member
    def TWICE(n):
        return 2 * n
    def apply(self, n):
        return self.value(n)

class S(Spout):
    outputs = Fields(w=object)
    def tuples(self):
        yield [*Does.__members__], Does.TWICE.apply(4), Does(Does.TWICE.value) is Does.TWICE
        yield Planet.EARTH.mass, Planet["WORLD"] is Planet((3, 4)), Unit("m").of, Page.SMALL.bytes
        yield May["ALL"] is May.READ | May.WRITE, May(3).name, list(Planet.__members__)
        yield [f.default is dataclasses.MISSING for f in dataclasses.fields(Size)]
        yield [f.default_factory is dataclasses.MISSING for f in dataclasses.fields(Size)]

b = TopologyBuilder("t")
b.spout("s", S())
build_bundle(b.build(), None, Path(sys.argv[1]))
"""


def test_enumerations_and_data_classes_of_a_script_have_in_a_worker_all_that_they_had(folder: Path) -> None:
    said = "(['NOTHING', 'TWICE'], 8, True) (3, True, 'length', 7) (True, 'ALL', ['EARTH', 'WORLD']) [False] [True]\n"
    assert in_worker(folder, ENUMS, DISPATCHED) == said


def test_instances_of_classes_that_a_script_defines_can_leave_a_worker(folder: Path) -> None:
    assert in_worker(folder, CLASSES, WORKER) == "[('RED', 'Sum', ['a', 'b'])]\n"


SHARED = """
import functools, sys
from pathlib import Path
from elastic import Fields, KeyedState, StatefulBolt, TextSpout, TopologyBuilder
from elastic.api.bundle import build_bundle

calls = 0

class tester:
    class Inner:
        pass

def double(n):
    return 2 * n

@functools.lru_cache(maxsize=7)
def triple(n):
    return n + double(n)

class Counts(StatefulBolt):
    outputs = Fields(calls=int, names=int)
    names = set()
    held = KeyedState(object)
    @functools.cached_property
    def tripled(self):
        return triple(7)
    def execute(self, tup):
        global calls
        calls += 1
        self.names.add(tup.line)
        self.held["x"] = [double, triple, tester(), tester.Inner(), self.tripled]
        self.emit(calls, len(self.names))

b = TopologyBuilder("t")
b.spout("s", TextSpout("a.txt"))
b.bolt("b", Counts()).fields("s", "line")
build_bundle(b.build(), None, Path(sys.argv[1]))
"""
SHARING = """
import sys
from pathlib import Path
from elastic.api.bundle import load_bundle
from elastic.testing import BoltTester

def double(n):
    return 0

parts = load_bundle(Path(sys.argv[1]))
tester = BoltTester(parts.component("b"))
print(tester.execute(line="a"), end=" ")
{then}
"""


def test_what_a_script_has_at_its_top_is_the_same_for_all_tasks_of_a_worker(folder: Path) -> None:
    then = "BoltTester(parts.component('b'))\nprint(tester.execute(line='b'))"
    assert in_worker(folder, SHARED, SHARING.format(then=then)) == "[(1, 1)] [(2, 2)]\n"


def test_what_a_script_defines_can_be_in_states_whatever_names_the_worker_has(folder: Path) -> None:
    then = (
        "tester.move()\nf, g, *made, n = tester.component.held['x']\n"
        "print(f(2), g(2), g.cache_info().maxsize, [type(m).__qualname__ for m in made], n)"
    )
    said = "[(1, 1)] 4 6 7 ['tester', 'tester.Inner'] 21\n"
    assert in_worker(folder, SHARED, SHARING.format(then=then)) == said


HELD = """
import threading
from pathlib import Path
from elastic import Bolt, TextSpout, TopologyBuilder
from elastic.api.bundle import build_bundle
from elastic.errors import NotShippable

lock = threading.Lock()

def helper(n):
    with lock:
        return helper(n - 1)

class Uses(Bolt):
    def execute(self, tup):
        super().execute(helper(1))

class Has(Bolt):
    lock = threading.Lock()
    def execute(self, tup):
        pass

def local(lock):
    class Local(Bolt):
        def execute(self, tup):
            lock.acquire()
    return Local()

b = TopologyBuilder("t")
b.spout("s", TextSpout("a.txt"))
b.bolt("b", {made}).shuffle("s")
try:
    build_bundle(b.build(), None, Path("b.zip"))
except NotShippable as e:
    print(e)
"""


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            "Uses()",
            "What the script defines cannot be sent to a worker: Uses.execute.helper() uses 'lock' (lock)",
        ),
        ("Has()", "What the script defines cannot be sent to a worker: attribute 'Has.lock' (lock) cannot"),
        (
            "local(lock)",
            "Component 'b' (Local) cannot be sent to a worker: Local.execute() uses 'lock' (lock)",
        ),
    ],
)
def test_what_of_a_script_cannot_be_pickled_is_named(folder: Path, made: str, said: str) -> None:
    write(folder, {"a.txt": ""})
    assert ran(folder, HELD.format(made=made)).startswith(said)


def test_a_module_that_ends_what_imports_it_cannot_be_loaded() -> None:
    leaves = b"csys\nexit\n(S'no license here'\ntR."  # a pickle of what calls sys.exit, as a module does where it is imported
    parts = ShippedComponents({"s": leaves}, {("s", 0): leaves}, {"s": leaves})
    for load in (lambda: parts.component("s"), lambda: parts.grouping("s", 0), lambda: parts.hooks("s")):
        with pytest.raises(
            NotShippable, match="cannot be loaded on this worker: SystemExit: no license here"
        ):
            load()
