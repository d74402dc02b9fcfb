"""From what the user names on the command line to a topology.

    FILE.py                     the function `topology` of that file
    FILE.py:function            another function, or a Topology, of that file
    module, module:function     of a module that Python finds (from the present directory, too)
    DIRECTORY[:module:function] a package directory (with an __init__.py)
    FILE.whl[:module:function]  a wheel; it need not be installed

The function is called with the words that follow on the command line as a list of strings, or with nothing
when it takes nothing. The module is imported under its own name, because workers will import it by that name.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from elastic.control.cli import namesakes
from elastic.control.cli.failures import CodeFailed, user_traceback
from elastic.errors import ConfigError, ElasticError, TopologyError

if TYPE_CHECKING:
    from elastic.api.builder import Topology

FUNCTION = "topology"


@dataclass(frozen=True)
class Loaded:
    """A topology, and where it came from.

    Attributes:
        entry: What is to be shipped: a file, a package directory, a wheel, or an importable module's name.
    """

    topology: Topology
    entry: Path | str


def load(target: str, arguments: Sequence[str]) -> Loaded:
    """Import what `target` names and let it make its topology.

    Args:
        target: See the module's docstring.
        arguments: What follows it on the command line.

    Raises:
        TopologyError: There is no such code, it does not make a topology, or it raised.
        ConfigError: It takes no arguments, but some were given.
    """
    before = sys.argv
    # argparse in the user's code names the program by this in its help and errors.
    sys.argv = [target.partition(":")[0], *arguments]
    try:
        module, function, entry = _import(target)
        topology = _make(module, function, list(arguments), target)
    except Exception as error:
        namesakes.refuse(_searched, error.__cause__)
        raise
    finally:
        sys.argv = before
    namesakes.refuse(_searched)
    namesakes.have_pythons(_searched)
    return Loaded(topology, entry)


def _import(target: str) -> tuple[ModuleType, str, Path | str]:
    place, _, rest = target.partition(":")
    path = Path(place)
    if place.endswith(".py"):
        if not path.is_file():
            raise TopologyError(f"There is no file {place}.", remedy=_near(path))
        return _from_file(path.absolute()), rest or FUNCTION, path.absolute()
    if place.endswith(".whl"):
        return *_from_wheel(path, rest), path.absolute()
    if path.is_dir():
        if not (path / "__init__.py").is_file():
            raise TopologyError(
                f"{place} is not a package: it has no __init__.py.",
                remedy="Name the file in it that makes the topology.",
            )
        # Not resolved: behind a link, the package still has the link's name.
        path = Path(os.path.abspath(path))  # noqa: PTH100 - it takes out `..`, which has no name
        name, function = _inside(path.name, rest)
        return _by_name(name, path.parent, target), function, path
    if not place or not all(part.isidentifier() for part in place.split(".")):
        raise TopologyError(
            f"{place!r} is neither a Python file, a package, a wheel nor a module.", remedy=_near(path)
        )
    return _by_name(place, Path.cwd(), target), rest or FUNCTION, place


def _inside(package: str, rest: str) -> tuple[str, str]:
    """(module, function) of the part after a package's or wheel's name."""
    first, _, second = rest.partition(":")
    if second:
        return first, second
    if "." in first:
        return first, FUNCTION
    return package, first or FUNCTION


def _from_file(path: Path) -> ModuleType:
    name = path.stem
    if "." in name:
        raise TopologyError(
            f"{path.name} cannot be imported: a module's name has no dot in it.", remedy="Rename it."
        )
    there = sys.modules.get(name)
    taken = name in sys.stdlib_module_names or name in namesakes.USED
    if taken or (there is not None and getattr(there, "__file__", None) != str(path)):
        raise TopologyError(
            f"{path.name} has the name of a module that Python itself or elastic uses ({name}).",
            remedy="Rename the file: workers import it by its name.",
        )
    _search(path.resolve().parent)  # of a link, `python FILE` takes the neighbours of what it leads to
    _search(path.parent)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # noqa: BLE001 - user code raises what it likes; it is shown as it is
        sys.modules.pop(name, None)
        alone = isinstance(error, ImportError) and "no known parent package" in str(error)
        remedy = (
            f"A file alone is in no package; name it as a module: {path.parent.name}.{name}" if alone else ""
        )
        _fail(error, f"{path.name} cannot be imported", remedy)
    return module


def _by_name(name: str, directory: Path, target: str) -> ModuleType:
    _search(directory)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise TopologyError(
                f"There is no module {error.name} (for {target}).",
                remedy=f"Python looked in {directory} and where packages are installed.",
            ) from None
        _fail(error, f"{name} cannot be imported")
    except Exception as error:  # noqa: BLE001 - user code raises what it likes; it is shown as it is
        _fail(error, f"{name} cannot be imported")


_unpacked: list[Path] = []


def remove_unpacked() -> None:
    """Remove what was unpacked to be imported; done at the end of the process, unless that is cut short."""
    import shutil

    while _unpacked:
        shutil.rmtree(_unpacked.pop(), ignore_errors=True)


def _from_wheel(path: Path, rest: str) -> tuple[ModuleType, str]:
    import atexit
    import tempfile
    import zipfile

    if not path.is_file():
        raise TopologyError(f"There is no file {path}.", remedy=_near(path))
    directory = Path(tempfile.mkdtemp(prefix="elastic-wheel-"))
    atexit.register(remove_unpacked)
    _unpacked.append(directory)
    try:
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(directory)
    except (zipfile.BadZipFile, OSError) as error:
        raise TopologyError(f"{path} is not a wheel that can be read: {error}") from None
    tops = sorted(
        p.stem
        for p in directory.iterdir()
        if (p.suffix == ".py" or (p / "__init__.py").is_file()) and p.stem.isidentifier()
    )
    first, _, second = rest.partition(":")
    if second or "." in first:
        name, function = first, second or FUNCTION
    elif len(tops) == 1:
        name, function = tops[0], first or FUNCTION
    else:
        raise TopologyError(
            f"{path.name} has {len(tops)} top-level modules: {', '.join(tops) or 'none'}.",
            remedy=f"Say which one makes the topology: {path}:MODULE:{FUNCTION}",
        )
    return _by_name(name, directory, str(path)), function


_searched: set[Path] = set()


def _search(directory: Path) -> None:
    """Make the code's neighbours importable, as `python FILE` does; also in processes that are started from here."""
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
        _searched.add(directory)


def _make(module: ModuleType, function: str, arguments: list[str], target: str) -> Topology:
    from elastic.api.builder import Topology, TopologyBuilder

    made: Any = getattr(module, function, None)
    if made is None:
        raise TopologyError(f"{module.__name__} has no {function}.", remedy=_candidates(module, target))
    if callable(made) and not isinstance(made, Topology):
        try:
            takes = bool(inspect.signature(made).parameters)
        except (TypeError, ValueError):
            takes = True
        if arguments and not takes:
            raise ConfigError(
                f"{function}() of {module.__name__} takes no arguments, but {' '.join(arguments)!r} was given.",
                remedy="Options of elastic itself go before the file.",
            )
        try:
            made = made(arguments) if takes else made()
        except Exception as error:  # noqa: BLE001 - user code raises what it likes; it is shown as it is
            _fail(error, f"{function}() of {module.__name__} failed")
    elif arguments:
        raise ConfigError(f"{function} of {module.__name__} is a topology already: it takes no arguments.")
    if isinstance(made, TopologyBuilder):
        made = made.build()
    if not isinstance(made, Topology):
        raise TopologyError(
            f"{function}() of {module.__name__} returned {type(made).__name__}, not a topology.",
            remedy="It should end with: return builder.build()",
        )
    return made


def _fail(error: Exception, what: str, remedy: str = "") -> NoReturn:
    """Raise `error` as one that shows the user's frames first."""
    if isinstance(error, ConfigError):
        raise error  # a value that somebody gave: its message says which; where it was noticed helps nobody
    if isinstance(error, ElasticError):
        setattr(error, "user_traceback", user_traceback(error, message=False))  # noqa: B010
        raise error
    raise CodeFailed(
        f"{what}: {type(error).__name__}{f': {error}' if str(error) else ''}",
        remedy=remedy,
        user_traceback=user_traceback(error),
    ) from error


def _near(path: Path) -> str:
    """A remedy for a name that is not there."""
    from difflib import get_close_matches

    folder = path.parent
    names = [p.name for p in folder.iterdir() if p.suffix in (".py", ".whl")] if folder.is_dir() else []
    close = get_close_matches(path.name, names, n=1) or get_close_matches(path.name + ".py", names, n=1)
    return f"Did you mean {folder / close[0]}?" if close else f"The present directory is {Path.cwd()}."


def _candidates(module: ModuleType, target: str) -> str:
    names = [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]
    place = target.partition(":")[0]
    if place.endswith(".whl") or Path(place).is_dir():
        place = f"{place}:{module.__name__}"  # it has more than one module
    if names:
        return f"It has {', '.join(names)}: name one as {place}:{names[0]}"
    if hasattr(module, "__path__"):
        return (
            f"Define {FUNCTION}(args) in its __init__.py, or name the module in it that does: {place}.MODULE"
        )
    return f"It should define: def {FUNCTION}(args): ... return builder.build()"
