"""Which modules does a piece of user code need, and which of them have to travel with it?"""

from __future__ import annotations

import ast
import contextlib
import importlib.machinery
import importlib.util
import sys
import sysconfig
import zipimport
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from elastic.errors import NotShippable

_OURS = frozenset({"elastic", "statestore"})
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_TOLERANT = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


@dataclass
class Needs:
    """What was found.

    Attributes:
        files: What to ship: the path inside the bundle -> the file.
        requires: Top-level modules that must be installed where the code runs, sorted.
    """

    files: dict[str, Path] = field(default_factory=dict)
    requires: tuple[str, ...] = ()


def collect(entries: Iterable[Path | str], optional: Iterable[str] = ()) -> Needs:
    """Everything that some modules need.

    Args:
        entries: Files, package directories, or names of importable modules.
        optional: Names of modules that are shipped when they are the user's own, and else not required.

    Raises:
        NotShippable: An entry cannot be read or parsed, a folder cannot be read, a module lies in an archive, or a file's name is not
            UTF-8.
    """
    needs = Needs()
    waiting = [(name.partition(".")[0], False) for name in optional]
    for entry in entries:
        if isinstance(entry, Path):
            if entry.suffix == ".py":
                imported(entry)
            waiting += _take(entry.name, entry, needs)
        else:
            waiting.append((entry.partition(".")[0], True))
    required: set[str] = set()
    seen: set[str] = set()
    while waiting:
        name, needed = waiting.pop()
        if name in _OURS or name == "__main__":
            continue
        if needed and name not in sys.stdlib_module_names:
            required.add(name)
        if name not in seen:
            seen.add(name)
            for inside, place in _local(name):
                waiting += _take(inside, place, needs)
    shipped = {Path(f).parts[0].partition(".")[0] for f in needs.files}
    needs.requires = tuple(sorted(required - shipped))
    return needs


def _take(name: str, place: Path, needs: Needs) -> list[tuple[str, bool]]:
    """Add a file or folder to what is shipped, under a name; returns what it imports, as `imported` does."""
    imports: list[tuple[str, bool]] = []
    for file in _files(place) if place.is_dir() else (place,):
        inside = str(Path(name) / file.relative_to(place))
        try:
            inside.encode()
        except UnicodeEncodeError:
            raise NotShippable(
                f"{str(file)!r} cannot be sent to a worker: its name is not UTF-8.",
                remedy="Rename it, or put it elsewhere.",
            ) from None
        # The first of several portions of a package has it, as when it is imported.
        needs.files.setdefault(inside, file)
        if file.suffix == ".py":
            # Not everything of that name is code that is ever imported: there are templates.
            with contextlib.suppress(NotShippable):
                imports += imported(file)
    return imports


def _files(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """What lies in a folder and below, also behind links, except those that lead back to where they are.

    Environments in it are not entered: what is in them is installed.
    """
    real = folder.resolve()
    if real in above:
        return
    try:
        places = sorted(folder.iterdir())
    except OSError as e:
        raise NotShippable(f"{folder} cannot be read: {e}") from e
    for place in places:
        if place.name.startswith(".") or place.name == "__pycache__":
            continue
        if place.is_dir():
            if not (place / "pyvenv.cfg").is_file():
                yield from _files(place, above | {real})
        elif place.is_file():
            yield place


def _local(name: str) -> list[tuple[str, Path]]:
    """Where a top-level module lies, unless it is installed: the name to ship it under, and the file or folder.

    A package without an `__init__.py` may have several folders.

    Raises:
        NotShippable: It lies in an archive (a zipapp, what `spark-submit --py-files` was given).
    """
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    if spec is None or spec.origin in ("built-in", "frozen"):
        return []
    if spec.origin is None:
        places = [
            (name, Path(p).absolute()) for p in spec.submodule_search_locations or () if Path(p).is_dir()
        ]
    elif isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
        return []
    elif spec.submodule_search_locations:
        places = [(name, Path(spec.origin).absolute().parent)]
    else:
        origin = Path(spec.origin).absolute()
        places = [(name + origin.suffix, origin)]
    found = [(inside, place) for inside, place in places if not _is_installed(place)]
    if found and isinstance(spec.loader, zipimport.zipimporter):
        raise NotShippable(
            f"{name} cannot be sent to a worker: it lies in an archive, {spec.loader.archive}.",
            remedy="Unpack that, or install it, here and on the nodes.",
        )
    return found


def _is_installed(place: Path) -> bool:
    """Whether it belongs to Python or was installed: here, for the user, by the system, or in what an environment is based on."""
    # Of a file, where it lies decides: some installers put links to their cache there.
    real = (place if place.is_dir() else place.parent).resolve()
    paths = sysconfig.get_paths()
    return not _INSTALLED.isdisjoint(real.parts) or any(
        real.is_relative_to(Path(paths[k]).resolve()) for k in ("stdlib", "platstdlib", "purelib", "platlib")
    )


def imported(file: Path) -> list[tuple[str, bool]]:
    """The top-level modules that a source file imports, and of each whether it needs it.

    It does not where it expects that the module may be missing.

    Raises:
        NotShippable: The file cannot be read or parsed.
    """
    try:
        tree = ast.parse(file.read_bytes(), filename=str(file))
    except (SyntaxError, ValueError, OSError) as e:
        raise NotShippable(f"{file} cannot be read as Python: {e}") from e
    return sorted({(name.partition(".")[0], needed) for name, needed in _names([tree], True)})


def _names(nodes: Iterable[ast.AST], needed: bool) -> Iterator[tuple[str, bool]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((a.name, needed) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0 and node.module:
                yield node.module, needed
        elif isinstance(node, ast.Try) and any(_tolerates(h) for h in node.handlers):
            yield from _names(node.body, False)
            yield from _names((*node.handlers, *node.orelse, *node.finalbody), needed)
        elif isinstance(node, ast.If) and _for_types_only(node.test):
            yield from _names(node.orelse, needed)
        elif isinstance(node, ast.If) and _for_some_only(node.test):
            yield from _names((*node.body, *node.orelse), False)
        else:
            if (name := _imported_by_call(node)) is not None:
                yield name, False
            yield from _names(ast.iter_child_nodes(node), needed)


def _imported_by_call(node: ast.AST) -> str | None:
    """The module in `importlib.import_module("module")` or `__import__("module")`."""
    if not isinstance(node, ast.Call) or not node.args:
        return None
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
    first = node.args[0]
    if called not in ("import_module", "__import__") or not isinstance(first, ast.Constant):
        return None
    name = first.value
    return name if isinstance(name, str) and not name.startswith(".") else None


def _for_types_only(test: ast.expr) -> bool:
    """Whether it is `TYPE_CHECKING` or `typing.TYPE_CHECKING`, and nothing else."""
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def _for_some_only(test: ast.expr) -> bool:
    """Whether it asks for the interpreter's version, the system, or whether the file is run by itself: what is imported below that is not
    needed everywhere."""
    of = {("sys", "version_info"), ("sys", "platform"), ("os", "name"), ("platform", "system")}
    for node in ast.walk(test):
        if isinstance(node, ast.Name) and node.id == "__name__":
            return True
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and (node.value.id, node.attr) in of
        ):
            return True
    return False


def _tolerates(handler: ast.ExceptHandler) -> bool:
    kind = handler.type
    if kind is None:
        return True
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(isinstance(k, ast.Name) and k.id in _TOLERANT for k in kinds)
