"""Which kinds of events the code emits, and how severe they are: found by reading it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

Kinds = dict[str, set[str]]
"""Kind -> severities."""

_KIND = re.compile(r"[a-z]+(-[a-z]+)+")
# Function or method -> (where its kind is among the positional arguments, where its severity is).
_CALLS = {
    "Event": (1, 3),
    "event": (0, 2),
    "on_task_event": (1, 3),
    "_happenings.node": (0, 2),
    "happenings.node": (0, 2),
    "self.worker": (0, 3),
    "happenings.worker": (0, 3),
    "warn": (0, None),
    "on_warning": (0, None),
}


class Unclear(AssertionError):
    """A kind or severity cannot be read off the code: write it so that it can."""


def emitted(package: Path) -> Kinds:
    """All kinds that the modules of a package emit.

    Raises:
        Unclear: An event is made in a way that this cannot follow.
    """
    found: Kinds = {}
    for file in sorted(package.rglob("*.py")):
        if "_pb2" in file.name:
            continue
        module = ast.parse(file.read_text(encoding="utf-8"))
        for kind, severity in _in_module(module, file.name):
            found.setdefault(kind, set()).add(severity)
    return found


def reasons(package: Path) -> set[str]:
    """The kinds of the reasons that the modules of a package give: they become events of the same kind."""
    found: set[str] = set()
    for file in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Reason", "_reason") and node.args:
                first = node.args[0]
                parts = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
                found.update(
                    p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)
                )
    return found


def details(package: Path) -> dict[str, set[str]]:
    """The names of details that the modules of a package give events of each kind, as far as they stand where the event is made."""
    found: dict[str, set[str]] = {}
    for file in sorted(package.rglob("*.py")):
        if "_pb2" in file.name:
            continue
        module = ast.parse(file.read_text(encoding="utf-8"))
        for function in ast.walk(module):
            if not isinstance(function, ast.FunctionDef):
                continue
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and (places := _places(call)) is not None:
                    for kind, _ in _pairs(call, places, function, _constants(module), file.name):
                        found.setdefault(kind, set()).update(_names(call, function))
    return found


def _names(call: ast.Call, function: ast.FunctionDef) -> Iterator[str]:
    variables = {n.id for n in ast.walk(call) if isinstance(n, ast.Name)}
    given = [n for n in ast.walk(call) if isinstance(n, ast.Dict)]
    for n in ast.walk(function):
        if isinstance(n, ast.Assign | ast.AnnAssign) and isinstance(n.value, ast.Dict | ast.Constant):
            target = n.targets[0] if isinstance(n, ast.Assign) else n.target
            if isinstance(n.value, ast.Dict) and ast.unparse(target) in variables:
                given.append(n.value)
        if (
            isinstance(n, ast.Subscript)
            and isinstance(n.ctx, ast.Store)
            and ast.unparse(n.value) in variables
        ):
            yield ast.literal_eval(n.slice)
    for dictionary in given:
        yield from (
            k.value for k in dictionary.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)
        )


def _constants(module: ast.Module) -> dict[str, ast.expr]:
    return {
        t.id: n.value
        for n in module.body
        if isinstance(n, ast.Assign)
        for t in n.targets
        if isinstance(t, ast.Name)
    }


def _in_module(module: ast.Module, name: str) -> Iterator[tuple[str, str]]:
    constants = _constants(module)
    for function in ast.walk(module):
        if not isinstance(function, ast.FunctionDef):
            continue
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and (places := _places(call)) is not None:
                yield from _pairs(call, places, function, constants, f"{name}:{call.lineno}")


def _places(call: ast.Call) -> tuple[int, int | None] | None:
    words = ast.unparse(call.func).split(".")
    if words[-2:] in (["present", "event"], ["reason", "event"], ["event"]):  # to plain values; from a reason
        return None
    for name in (".".join(words[-2:]), words[-1]):
        if name in _CALLS:
            return _CALLS[name] if name != "warn" or words[-2:-1] == ["context"] else None
    return None


def _pairs(
    call: ast.Call,
    places: tuple[int, int | None],
    function: ast.FunctionDef,
    constants: dict[str, ast.expr],
    where: str,
) -> Iterator[tuple[str, str]]:
    kind = _argument(call, places[0], "kind")
    if kind is None:
        return  # threading.Event() and its like
    if isinstance(kind, ast.Attribute) and kind.attr == "kind":
        return  # That of a reason: see `reasons`.
    parameters = {a.arg for a in (*function.args.args, *function.args.kwonlyargs)}
    if isinstance(kind, ast.Name) and kind.id in parameters:
        # Handed on: the caller's call is the one that counts. What a default or another value adds is still said here.
        yield from ((k, "warning") for k in _strings(_assigned(function, kind.id)))
        return
    if isinstance(kind, ast.Name) and (table := _table(function, kind.id, constants)) is not None:
        yield from table
        return
    kinds = list(_kinds(kind, function))
    if not kinds:
        raise Unclear(f"{where}: which kind of event is {ast.unparse(kind)}?")
    given = _argument(call, places[1], "severity") if places[1] is not None else None
    if places[1] is None:
        severities = ["warning"]
    elif given is None:
        severities = ["info"]
    else:
        severities = [
            n.attr.lower()
            for n in ast.walk(given)
            if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "Severity"
        ]
        if not severities:
            raise Unclear(f"{where}: how severe is {ast.unparse(given)}?")
    yield from ((k, s) for k in kinds for s in severities)


def _argument(call: ast.Call, place: int | None, name: str) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return call.args[place] if place is not None and place < len(call.args) else None


def _kinds(node: ast.expr, function: ast.FunctionDef) -> Iterator[str]:
    if isinstance(node, ast.JoinedStr):
        texts = [""]
        for part in node.values:
            if isinstance(part, ast.Constant):
                choices = [str(part.value)]
            else:
                assert isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name)
                assigned = _assigned(function, part.value.id)
                choices = [
                    str(n.value)
                    for a in assigned
                    for n in (a.body, a.orelse)  # type: ignore[attr-defined]
                    if isinstance(n, ast.Constant)
                ]
            texts = [t + c for t in texts for c in choices]
        yield from texts
    else:
        yield from _strings([node])


def _strings(nodes: list[ast.expr]) -> Iterator[str]:
    for node in nodes:
        parts = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]
        for n in parts:
            if isinstance(n, ast.Constant) and isinstance(n.value, str) and _KIND.fullmatch(n.value):
                yield n.value


def _assigned(function: ast.FunctionDef, name: str) -> list[ast.expr]:
    return [
        n.value
        for n in ast.walk(function)
        if isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in n.targets)
    ]


def _table(
    function: ast.FunctionDef, name: str, constants: dict[str, ast.expr]
) -> list[tuple[str, str]] | None:
    """`kind, words, severity = TABLE[...]`: the rows of that table."""
    for n in ast.walk(function):
        if (
            isinstance(n, ast.Assign)
            and isinstance(n.targets[0], ast.Tuple)
            and name in {ast.unparse(t) for t in n.targets[0].elts}
            and isinstance(n.value, ast.Subscript)
        ):
            table = constants[ast.unparse(n.value.value)]
            assert isinstance(table, ast.Dict)
            rows = [r for r in table.values if isinstance(r, ast.Tuple)]
            return [
                (ast.literal_eval(r.elts[0]), ast.unparse(r.elts[-1]).rpartition(".")[2].lower())
                for r in rows
            ]
    return None


def documented(page: str) -> tuple[Kinds, set[str]]:
    """The kinds of a page's tables with their severities, and those that are marked with a star."""
    found: Kinds = {}
    marked = set()
    for kind, star, severities in re.findall(r"^\| `([a-z-]+)`( \*)? \| ([a-z, ]+) \|", page, re.MULTILINE):
        found[kind] = set(severities.split(", "))
        if star:
            marked.add(kind)
    return found, marked


def documented_details(page: str) -> dict[str, set[str]]:
    """The words of what a page's tables say of the details of each kind."""
    found: dict[str, set[str]] = {}
    for kind, said in re.findall(r"^\| `([a-z-]+)`(?: \*)? \| [a-z, ]+ \|.*\|([^|]*)\|$", page, re.MULTILINE):
        found.setdefault(kind, set()).update(re.findall(r"\w+", said))
    return found
