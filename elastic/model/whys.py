"""Why tasks move, as moves give it: what was asked for. The one place for the words by which a request knows its moves again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from elastic.model.words import counted

_BETWEEN = "; "
_SHARE = ", share "
_CUT = "…"


def to_move(what: str, where: str) -> str:
    """Of `move`: the tasks and the place as they were named."""
    return f"move {what} to {where}"


def to_rebalance(executors: Mapping[str, int], workers: int | None) -> str:
    """Of `rebalance` and `scale`."""
    asked = [f"{c}={n}" for c, n in sorted(executors.items())]
    asked += [counted(workers, "worker")] if workers is not None else []
    return f"rebalance {', '.join(asked)}".strip()


def with_share(why: str, share: float | None) -> str:
    """With the share of a component that may pause at once, where one was named."""
    return why if share is None else f"{why}{_SHARE}{share:g}"


def several(reasons: Iterable[str], most: int) -> str:
    """Of a move that is made for several requests: each once, in their order.

    Args:
        most: Characters; those that came first are left out if need be, and it says so. One alone is never cut.
    """
    whys = list(dict.fromkeys(reasons))
    left = False
    while len(whys) > 1 and len(_BETWEEN.join(whys)) > most:
        del whys[0]
        left = True
    return _BETWEEN.join([_CUT, *whys] if left else whys)


def is_cut(why: str) -> bool:
    """Whether a move has been made for requests besides that its reason has no room for."""
    return why.startswith(_CUT + _BETWEEN)


def asked_by(why: str, request: str) -> bool:
    """Whether a move that gives this as its reason was made for that request, whatever its share, among others."""
    return any(w == request or w.startswith(request + _SHARE) for w in why.split(_BETWEEN))
