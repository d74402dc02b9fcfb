"""Modules of the user's that are named like those of Python's or elastic's: one would be taken for the other, here or in a worker."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Set
from pathlib import Path
from types import ModuleType

from elastic.errors import TopologyError

USED = frozenset(
    {
        "elastic",
        "statestore",
        "click",
        "cloudpickle",
        "dateutil",
        "google",
        "grpc",
        "grpc_health",
        "grpc_reflection",
        "grpc_status",
        "hazelcast",
        "jinja2",
        "kazoo",
        "lmdb",
        "mmh3",
        "msgspec",
        "numpy",
        "pandas",
        "prometheus_client",
        "pyarrow",
        "pyiceberg_core",
        "pyspark",
        "rich",
        "typing_extensions",
        "yaml",
        "zlib_ng",
    }
)
"""Modules that elastic imports, and that are not Python's; some only later, here or in workers: then it would get the user's. And those
without which what it imports does not work, or is left out: pandas, which pyarrow imports."""

WANTED = frozenset(
    """
    abc argparse array ast asyncio asyncore atexit base64 binascii bisect builtins bz2 calendar codecs collections concurrent
    contextlib contextvars copy copyreg csv ctypes dataclasses datetime decimal difflib dis email encodings enum errno fcntl
    fnmatch functools gc genericpath gettext glob graphlib gzip hashlib heapq hmac http importlib inspect io ipaddress
    itertools json keyword linecache locale logging lzma marshal math mimetypes mmap ntpath numbers opcode operator os pathlib
    pickle pkgutil platform posix posixpath pwd pyexpat queue quopri random re reprlib resource secrets select selectors shlex
    shutil signal site socket socketserver ssl stat string stringprep struct subprocess sys sysconfig tempfile textwrap
    threading time token tokenize traceback types typing unicodedata urllib uuid warnings weakref wsgiref xml zipfile
    zipimport zlib zoneinfo
    """.split()  # noqa: SIM905 - a name a line is too much to read
).intersection(sys.stdlib_module_names)  # a later Python has some no more: they are nobody's then
"""Python's own modules that elastic imports, and what it imports: here or in workers there is one of that name, Python's or the user's."""


def refuse(searched: Set[Path], error: BaseException | None = None) -> None:
    """Refuse a neighbour that was found in place of a module of Python's or elastic's, or was to be and was not, as `error` says.

    Elastic, here or in a worker, gets it then, or the user's code gets the other one.

    Args:
        searched: Where the user's code finds its neighbours.
        error: What loading that code came to; None: it is loaded.

    Raises:
        TopologyError: There is such a one.
    """
    missed = ""  # the module that lacks what was wanted of it
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        missed = error.obj.__name__
    elif isinstance(error, ImportError):
        missed = (error.name or "").partition(".")[0]
    for name in sorted((WANTED | USED) - {"elastic", "statestore"}):
        there = getattr(sys.modules.get(name), "__file__", None)
        for directory in searched:
            file, package = directory / f"{name}.py", directory / name / "__init__.py"
            # A package named like one that elastic uses may be that one, copied.
            own = {str(file)} if name in USED else {str(file), str(package)}
            if there in own or (name == missed and (file.is_file() or package.is_file())):
                raise TopologyError(
                    f"{file if file.is_file() else package.parent} has the name of a module that Python itself or elastic uses"
                    f" ({name}).",
                    remedy="Rename it: one would be taken for the other.",
                ) from error


def have_pythons(searched: Set[Path]) -> None:
    """Import what elastic wants later, where it would find a neighbour that the user's code does not import."""
    found = [n for n in WANTED - sys.modules.keys() if any((d / f"{n}.py").is_file() for d in searched)]
    path = sys.path
    sys.path = [p for p in path if Path(p) not in searched]
    try:
        for name in sorted(found):
            importlib.import_module(name)
    finally:
        sys.path = path
