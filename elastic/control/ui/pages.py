"""The pages as HTML: each is a number of sections, so that only what has changed is sent again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined

from elastic.control import checkpoint_words, move_words, present
from elastic.control.tasks import Reports
from elastic.control.ui.drawing import (
    BOX_HEIGHT,
    BOX_WIDTH,
    CHART_HEIGHT,
    CHART_WIDTH,
    chart,
    graph,
    timeline,
)
from elastic.control.ui.watching import Shown, rate_of
from elastic.model import words
from elastic.model.views import ExecutorView, MoveView, TopologyDetail

MOVES_ON_A_PAGE = 20
EVENTS_ON_A_PAGE = 40
TASKS_ON_A_PAGE = 500
EXECUTORS_OF_A_WORKER = 60
COLORS = 8
"""Of components: `c0` and so on in the style sheet."""
Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """One page.

    Attributes:
        title: Of the browser's window.
        sections: HTML by the name of the section, in order; what is empty takes no room.
        found: Whether there is such a page.
    """

    title: str
    sections: Mapping[str, str]
    found: bool = True


class Pages:
    """Makes pages of what is known."""

    def __init__(self) -> None:
        # Names come from users: everything is escaped.
        self._templates = Environment(
            loader=PackageLoader("elastic.control.ui"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        for what in (
            words.number,
            words.share,
            words.size,
            words.duration,
            words.clock,
            move_words.milliseconds,
            checkpoint_words.troubles,
        ):
            self._templates.filters[what.__name__] = what
        self._templates.filters["path"] = lambda text: quote(str(text), safe="")
        self._templates.filters["step"] = move_words.step
        self._templates.filters["rate"] = rate_of

    def whole(self, page: Page, live: str) -> str:
        """A page as a document.

        Args:
            live: From where the browser gets what changes.
        """
        return self._templates.get_template("page.html").render(page=page, live=live)

    def page(self, address: str, shown: Shown) -> Page:
        """The page at an address.

        Args:
            address: A path, perhaps with a query: "/topologies/word-count/tasks?sort=queued".
        """
        parts = urlsplit(address)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        match [unquote(part) for part in parts.path.split("/")[1:]]:
            case [""]:
                return self._cluster(shown)
            case ["topologies", name]:
                return self._of(name, shown, self._topology)
            case ["topologies", name, "tasks"]:
                return self._of(name, shown, lambda detail, shown: self._tasks(detail, shown, query))
            case ["topologies", name, "moves", number]:
                return self._move(name, number, shown)
        return self._nothing("There is no such page.", shown)

    def _section(self, name: str, values: Values) -> str:
        return self._templates.get_template(f"{name}.html").render(values).strip()

    def _page(self, title: str, shown: Shown, sections: Mapping[str, Values], *, found: bool = True) -> Page:
        made = {name: self._section(name, values) for name, values in sections.items()}
        return Page(title, {"trouble": self._section("trouble", {"shown": shown}), **made}, found)

    def _nothing(self, text: str, shown: Shown) -> Page:
        return self._page("not found", shown, {"nothing": {"text": text}}, found=False)

    def _cluster(self, shown: Shown) -> Page:
        look = shown.look
        return self._page(
            look.cluster.cluster,
            shown,
            {
                "cluster": {"look": look},
                "nodes": {"nodes": [present.node(n) for n in look.nodes]},
                "moves": _moves(shown.moves, several=True),
                "events": {"events": shown.events[:EVENTS_ON_A_PAGE]},
            },
        )

    def _of(self, name: str, shown: Shown, make: Callable[[TopologyDetail, Shown], Page]) -> Page:
        detail = shown.look.details.get(name)
        if detail is not None:
            return make(detail, shown)
        ended = next((t for t in shown.look.topologies if t.name == name), None)
        if ended is None:
            return self._nothing(f"There is no topology {name}.", shown)
        return self._page(name, shown, {"ended": {"topology": ended}})

    def _topology(self, detail: TopologyDetail, shown: Shown) -> Page:
        name = str(detail.summary.name)
        moves = [m for m in shown.moves if m.topology == name]
        drawn = {
            "chart": chart(shown.history.get(name, ()), moves),
            "width": CHART_WIDTH,
            "height": CHART_HEIGHT,
        }
        components = {str(c.id): c for c in detail.components}
        colors = {component: number % COLORS for number, component in enumerate(components)}
        return self._page(
            name,
            shown,
            {
                "topology": {"detail": detail},
                "graph": {
                    "graph": graph(detail.spec),
                    "components": components,
                    "width": BOX_WIDTH,
                    "height": BOX_HEIGHT,
                },
                "rates": {**drawn, "colors": colors},
                "places": {"nodes": _places(detail), "waiting": _waiting(detail), "colors": colors},
                "components": {"detail": detail},
                "moves": _moves(moves, several=False),
                "decided": {"detail": detail},
                "events": {"events": [e for e in shown.events if e.topology == name][:EVENTS_ON_A_PAGE]},
            },
        )

    def _tasks(self, detail: TopologyDetail, shown: Shown, query: Values) -> Page:
        rows = shown.reports.get(str(detail.summary.name), Reports()).rows(detail)
        sort = query.get("sort", "task")
        if rows and sort in rows[0]:
            rows.sort(
                key=lambda row: row[sort], reverse=not isinstance(rows[0][sort], str) and sort != "task"
            )
        name = str(detail.summary.name)
        values = {"name": name, "rows": rows[:TASKS_ON_A_PAGE], "all": len(rows), "sort": sort}
        return self._page(f"{name}: tasks", shown, {"tasks": values})

    def _move(self, name: str, number: str, shown: Shown) -> Page:
        move = next((m for m in shown.moves if m.topology == name and str(m.epoch) == number), None)
        if move is None:
            return self._nothing(f"Move {number} of {name} is not known, or not any more.", shown)
        plain = present.move(move)
        values = {
            "move": move,
            "plain": plain,
            "timeline": timeline(move),
            "outcome": move_words.outcome(plain),
        }
        return self._page(f"{name}: move {number}", shown, {"move": values})


def _places(detail: TopologyDetail) -> Mapping[str, Sequence[Values]]:
    """Workers by node, each with its executors: as many as are shown, and how many there are besides."""
    by_worker: dict[str, list[ExecutorView]] = {}
    for executor in detail.executors:
        by_worker.setdefault(executor.worker, []).append(executor)
    nodes: dict[str, list[Values]] = {}
    for worker in detail.workers:
        executors = by_worker.get(str(worker.worker), [])
        more = max(0, len(executors) - EXECUTORS_OF_A_WORKER)
        shown = executors[:EXECUTORS_OF_A_WORKER]
        nodes.setdefault(str(worker.node), []).append({"view": worker, "executors": shown, "more": more})
    return dict(sorted(nodes.items()))


def _waiting(detail: TopologyDetail) -> Sequence[str]:
    return [e.id for e in detail.executors if not e.worker]


def _moves(moves: Sequence[MoveView], *, several: bool) -> Values:
    """What the section of moves shows.

    Args:
        several: Of several topologies: each names its own.
    """
    rows = [present.move(m) for m in moves[:MOVES_ON_A_PAGE]]
    longest = max((row["pause"] for row in rows), default=0.0)
    for row in rows:
        row["outcome"] = move_words.outcome(row)
        row["still"] = move_words.pause(row["tasks"], row["pause"]) or ""
        row["width"] = 100 * row["pause"] / longest if longest else 0
    return {"moves": rows, "several": several}
