"""Which modules does a piece of user code need, and which of them have to travel with it?"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from elastic.errors import NotShippable

_OURS = frozenset({"elastic", "statestore"})
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


def collect(entries: list[Path | str]) -> Needs:
    """Everything that some modules need.

    Args:
        entries: Files, package directories, or names of importable modules.

    Raises:
        NotShippable: A file cannot be read or parsed.
    """
    needs = Needs()
    required: set[str] = set()
    waiting: list[str] = []
    for entry in entries:
        if isinstance(entry, Path):
            waiting += _take(entry, needs)
        else:
            waiting.append(entry.partition(".")[0])
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or name in sys.stdlib_module_names or name in _OURS or name == "__main__":
            continue
        seen.add(name)
        place = _local(name)
        if place is None:
            required.add(name)
        else:
            waiting += _take(place, needs)
    shipped = {Path(f).parts[0].removesuffix(".py") for f in needs.files}
    needs.requires = tuple(sorted(required - shipped))
    return needs


def _take(place: Path, needs: Needs) -> list[str]:
    """Add a module or package to what is shipped; returns the top-level modules that it imports."""
    imports: list[str] = []
    if place.is_dir():
        for file in sorted(place.rglob("*")):
            if (
                file.is_file()
                and "__pycache__" not in file.parts
                and not any(p.startswith(".") for p in file.relative_to(place).parts)
            ):
                needs.files[str(Path(place.name) / file.relative_to(place))] = file
                if file.suffix == ".py":
                    imports += imported(file)
    else:
        needs.files[place.name] = place
        if place.suffix == ".py":
            imports += imported(place)
    return imports


def _local(name: str) -> Path | None:
    """Where a top-level module lies that is not installed: a file or a package directory; None for installed ones."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin in (None, "built-in", "frozen"):
        return None
    assert spec.origin is not None
    origin = Path(spec.origin).resolve()
    if any(origin.is_relative_to(p) for p in _installed()) or isinstance(
        spec.loader, importlib.machinery.ExtensionFileLoader
    ):
        return None
    return origin.parent if spec.submodule_search_locations else origin


def _installed() -> list[Path]:
    paths = sysconfig.get_paths()
    return [Path(paths[k]).resolve() for k in ("stdlib", "platstdlib", "purelib", "platlib")]


def imported(file: Path) -> list[str]:
    """The top-level modules that a source file imports, except where it expects that they may be missing."""
    try:
        tree = ast.parse(file.read_bytes(), filename=str(file))
    except (SyntaxError, ValueError, OSError) as e:
        raise NotShippable(f"{file} cannot be read as Python: {e}") from e
    return sorted({name.partition(".")[0] for name in _names(tree)})


def _names(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (a.name for a in child.names)
        elif isinstance(child, ast.ImportFrom):
            if child.level == 0 and child.module:
                yield child.module
        elif isinstance(child, ast.Try) and any(_tolerates(h) for h in child.handlers):
            for part in (*child.handlers, *child.orelse, *child.finalbody):
                yield from _names(part)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            for part in child.orelse:
                yield from _names(part)
        else:
            yield from _names(child)


def _tolerates(handler: ast.ExceptHandler) -> bool:
    kind = handler.type
    if kind is None:
        return True
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(isinstance(k, ast.Name) and k.id in _TOLERANT for k in kinds)
