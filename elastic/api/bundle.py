"""Code bundles: everything of the user's that a worker needs, as one zip named by its SHA-256.

    bundle.json         entry module, files with their hashes, modules that must be installed, Python's version
    components.pickle   component -> pickled instance; custom groupings; hooks; what they use of the script that made them
    code/...            modules and packages, on `sys.path` in the worker

The same content always gives the same file.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import pickle
import stat
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from elastic.api import by_value
from elastic.api.builder import Topology
from elastic.api.components import Component, CustomGrouping, TaskHook
from elastic.api.imports import Needs, collect, imported
from elastic.errors import NotShippable

_EPOCH = (1980, 1, 1, 0, 0, 0)
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Only the same one can run functions that were pickled by value, as what the interpreter makes of them."""


@dataclass(frozen=True, slots=True)
class BundleInfo:
    """A bundle that was built.

    Attributes:
        path: The zip file.
        sha256: Its hash, hex: its name in the cluster.
        requires: Top-level modules that must be installed on every node.
        size: Bytes.
    """

    path: Path
    sha256: str
    requires: tuple[str, ...]
    size: int


def build_bundle(topology: Topology, entry: Path | str | None, into: Path) -> BundleInfo:
    """Make the code bundle of a topology.

    Args:
        topology: The topology.
        entry: The file, package directory, wheel or module name that the topology was loaded from; None when it was made in this
            process (a notebook, a script): then what is of `__main__` travels by value, and as files the modules that it or a
            component uses, as far as they are not installed.
        into: The zip file to write.

    Returns:
        What was built.

    Raises:
        NotShippable: A component cannot be pickled (the attribute is named), or code cannot be read or has a name that is not UTF-8.
    """
    used: set[str] = set()
    pickled = _pickle_all(topology, used)
    with contextlib.ExitStack() as stack:
        entries: list[Path | str] = []
        if isinstance(entry, Path) and entry.suffix == ".whl":
            # Not without need: who interrupts the process at the wrong moment leaves it behind.
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="elastic-bundle-"))
            entries += _unpack(entry, Path(scratch))
        elif entry is not None:
            entries.append(entry.absolute() if isinstance(entry, Path) else entry)
        entries += sorted({type(o).__module__ for o in _objects(topology)})
        if entry is None and "__main__" in used:
            for name, needed in _imports_of_main():
                entries += [name] if needed else []
                used.add(name)
        needs = collect(entries, sorted(used))
        _write(into, needs, pickled, str(entry or ""))
    data = into.read_bytes()
    return BundleInfo(into, hashlib.sha256(data).hexdigest(), needs.requires, len(data))


def load_bundle(directory: Path) -> ShippedComponents:
    """The components in an unpacked bundle; its code becomes importable in this process.

    Raises:
        NotShippable: Something of it cannot be imported or unpickled here.
    """
    code = str(directory / "code")
    if code not in sys.path:
        sys.path.insert(0, code)
    try:
        pickled = (directory / "components.pickle").read_bytes()
        if by_value.MARK in pickled:
            _need_same_python(directory)
        parts = pickle.loads(pickled)
        if script := _load(parts["script"], "What the script defines"):
            # Components, tuples and states name it as of `__main__`, which is its own: that of this program has such names, too.
            main = sys.modules["__main__"] = ModuleType("__main__")
            for name, made in script.items():
                if isinstance(made, type):
                    made.__qualname__ = name  # of a class in another, cloudpickle keeps the last name alone
                if "." not in name:
                    setattr(main, name, made)
        return ShippedComponents(parts["components"], parts["groupings"], parts["hooks"])
    except OSError as e:
        raise NotShippable(f"The code bundle in {directory} is incomplete: {e}") from e


def _need_same_python(directory: Path) -> None:
    """Not for it to find out as it runs: another one's code may end it."""
    python = json.loads((directory / "bundle.json").read_bytes())["python"]
    if python != _PYTHON:
        raise NotShippable(
            f"This topology was submitted with Python {python}, and this worker has Python {_PYTHON}: functions that travel with it, "
            "those of a script and lambdas, cannot run here. Submit it with the same Python, or have them in a module, by a name."
        )


class ShippedComponents:
    """Gives each task its own copy out of a bundle (fills `elastic.worker.executing.components.ComponentSource`)."""

    def __init__(
        self, components: dict[str, bytes], groupings: dict[tuple[str, int], bytes], hooks: dict[str, bytes]
    ) -> None:
        self._components = components
        self._groupings = groupings
        self._hooks = hooks

    def component(self, id: str) -> Component:
        """A fresh copy of a component."""
        made: Component = _load(self._components[id], f"Component {id!r}")
        return made

    def grouping(self, consumer: str, number: int) -> CustomGrouping | None:
        """A fresh copy of a custom grouping, or None when that subscription has none."""
        data = self._groupings.get((consumer, number))
        return None if data is None else _load(data, f"The custom grouping of {consumer!r}")

    def hooks(self, id: str) -> Sequence[TaskHook]:
        """Fresh copies of a component's hooks."""
        return [*self._some_hooks(""), *self._some_hooks(id)]

    def _some_hooks(self, id: str) -> list[TaskHook]:
        data = self._hooks.get(id)
        return [] if data is None else _load(data, "A task hook")


def _load(data: bytes, what: str) -> Any:
    try:
        return pickle.loads(data)
    except (Exception, SystemExit) as e:  # importing user code may raise anything
        raise NotShippable(f"{what} cannot be loaded on this worker: {type(e).__name__}: {e}") from e


def _objects(topology: Topology) -> Iterable[object]:
    yield from topology.components.values()
    yield from topology.groupings.values()
    for hooks in topology.hooks.values():
        yield from hooks


def _imports_of_main() -> list[tuple[str, bool]]:
    """What the script that runs imports, as `imported` says it; a notebook has no file to read, and some have no source."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    if file is None:
        return []
    try:
        return imported(Path(file))
    except NotShippable:
        return []


def _pickle_all(topology: Topology, used: set[str]) -> bytes:
    """The file of components; the modules of the functions and classes in it are added to `used`."""
    script: dict[str, object] = {}
    parts: dict[str, Any] = {
        "components": {
            id: _pickle(c, f"Component {id!r}", used, script) for id, c in sorted(topology.components.items())
        },
        "groupings": {
            key: _pickle(g, f"The custom grouping of {key[0]!r}", used, script)
            for key, g in sorted(topology.groupings.items())
        },
        "hooks": {
            id: _pickle(list(hooks), "A task hook", used, script)
            for id, hooks in sorted(topology.hooks.items())
            if hooks
        },
        "script": _pickle_script(script, used),
    }
    return pickle.dumps(parts, protocol=5)


def _pickle_script(script: dict[str, object], used: set[str]) -> bytes:
    """Functions and classes of `__main__`, with all that they use of it, which is added to `script`."""
    while True:
        before = set(script)
        try:
            data = by_value.dump(dict(sorted(script.items())), used, script, by_name=False)
        except Exception as e:
            where = next(filter(None, (_blame(script[name], name) for name in sorted(script))), "")
            raise NotShippable(
                f"What the script defines cannot be sent to a worker: {where}{type(e).__name__}: {e}",
                remedy="Open files, sockets, locks and connections in prepare(), not beside classes and functions.",
            ) from e
        if before == set(script):
            return data


def _pickle(value: object, what: str, used: set[str], script: dict[str, object]) -> bytes:
    """What it is made of is added to `used`, by module, and to `script`, as `by_value.dump` does."""
    try:
        return by_value.dump(value, used, script, by_name=True)
    except Exception as e:
        raise NotShippable(
            f"{what} ({type(value).__name__}) cannot be sent to a worker: {_blame(value, '')}{type(e).__name__}: {e}",
            remedy="Open files, sockets, locks and connections in prepare(), not in __init__().",
        ) from e


def _blame(value: object, path: str, above: tuple[object, ...] = ()) -> str:
    """Which attribute cannot be pickled, as the beginning of a sentence; looks into attributes that are objects themselves.

    Of functions, and of methods of classes: what they use of the script.
    """
    above = (*above, value)
    for name, inner in sorted(_parts(value), key=itemgetter(0)):
        if any(inner is a for a in above):
            continue
        try:
            by_value.dump(inner, set(), {}, by_name=False)
        except Exception:
            here = f"{path}.{name}" if path else name
            deeper = _blame(inner, here, above) if len(above) <= 5 else ""
            if deeper:
                return deeper
            if isinstance(value, FunctionType):
                user = path or value.__name__
                return f"{user}() uses {name!r} ({type(inner).__name__}), which cannot be pickled: "
            return f"attribute {here!r} ({type(inner).__name__}) cannot be pickled: "
    return ""


def _parts(value: object) -> Iterable[tuple[str, object]]:
    """What is pickled with an object, by name; of a function what it uses."""
    if isinstance(value, FunctionType):
        used = inspect.getclosurevars(value)
        return [*used.nonlocals.items(), *used.globals.items()]
    parts = getattr(value, "__dict__", {}).items()
    if not isinstance(value, type):
        return [*parts, (type(value).__name__, type(value))]
    # Python's own, and what goes by another way, are no fault of anybody's.
    return [(n, p) for n, p in parts if isinstance(p, FunctionType) or not n.startswith(("__", "_abc_"))]


def _unpack(wheel: Path, into: Path) -> list[Path | str]:
    try:
        with zipfile.ZipFile(wheel) as file:
            file.extractall(into)
    except (zipfile.BadZipFile, OSError) as e:
        raise NotShippable(f"{wheel} is not a wheel that can be read: {e}") from e
    return [p for p in sorted(into.iterdir()) if p.suffix not in (".dist-info", ".data")]


def _write(into: Path, needs: Needs, pickled: bytes, entry: str) -> None:
    try:
        content = {f"code/{name}": file.read_bytes() for name, file in sorted(needs.files.items())}
        runnable = {f"code/{name}" for name, file in needs.files.items() if os.access(file, os.X_OK)}
    except OSError as e:
        raise NotShippable(f"{e.filename} cannot be read: {e.strerror}") from e
    described = {
        "entry": Path(entry).name,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in content.items()},
        "requires": list(needs.requires),
        "python": _PYTHON,
    }
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in [
            ("bundle.json", json.dumps(described, indent=1, sort_keys=True).encode()),
            ("components.pickle", pickled),
            *content.items(),
        ]:
            info = zipfile.ZipInfo(name, _EPOCH)
            if name in runnable:
                info.external_attr = (stat.S_IFREG | 0o755) << 16
            file.writestr(info, data, zipfile.ZIP_DEFLATED)
