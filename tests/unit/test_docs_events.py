"""docs/events.md has every kind of event that the code emits, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs_events import Unclear, details, documented, documented_details, emitted, reasons

from elastic.nimbus.observing.reports import ERRORS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")


def test_every_kind_is_documented_with_its_severities() -> None:
    assert documented(PAGE)[0] == emitted(ROOT / "elastic")


def test_every_detail_is_documented() -> None:
    given, said = details(ROOT / "elastic"), documented_details(PAGE)
    assert len(given) > 60 and {"id", "seconds"} <= given["topology-killed"]
    assert {"exit_code", "signal"} <= said["worker-lost"]
    # Whatever is about a worker has `incarnation`, as the page says above the table; three kinds are made in one place.
    said["topology-finished"] |= said["topology-failed"]
    said["topology-killed"] |= said["topology-failed"]
    assert {k: more for k, names in given.items() if (more := names - said[k] - {"incarnation"})} == {}


@pytest.mark.parametrize("part", ["elasticity", "scheduler"])
def test_every_reason_of_a_decision_is_documented(part: str) -> None:
    page = (ROOT / "docs" / f"{part.removesuffix('r')}{'rs' if part == 'scheduler' else ''}.md").read_text(
        "utf-8"
    )
    kinds = reasons(ROOT / "elastic" / part)
    assert len(kinds) >= 3 and [k for k in sorted(kinds) if f"`{k}`" not in page] == []


def test_those_that_are_kept_as_errors_are_marked() -> None:
    kinds, marked = documented(PAGE)
    assert marked == ERRORS | {k for k, severities in kinds.items() if "error" in severities}


def _module(tmp_path: Path, text: str) -> Path:
    (tmp_path / "module.py").write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ('def f(w):\n w.event("it-fell", "down", Severity.ERROR)', {"it-fell": {"error"}}),
        ('def f():\n return Event(now, "it-rose" if up else "it-fell", "x")', {"it-rose": {"info"}, "it-fell": {"info"}}),
        (
            'def f(t):\n how = "lost" if a else "found"\n t.on_task_event(t, f"it-{how}", x, Severity.INFO if b else Severity.ERROR, {})',
            {"it-lost": {"info", "error"}, "it-found": {"info", "error"}},
        ),
        (
            'ENDS = {1: ("it-ended", "x", Severity.ERROR)}\ndef f(s):\n kind, x, severity = ENDS[s]\n return Event(now, kind, x, severity)',
            {"it-ended": {"error"}},
        ),
        ('def f(self):\n self.context.warn("it-creaks", "x")', {"it-creaks": {"warning"}}),
        ('def event(self, kind, message):\n self.on_event(Event(now, kind, message))', {}),
        ("def f():\n return threading.Event()", {}),
    ],
)  # fmt: skip
def test_kinds_are_found_in_code(text: str, kinds: dict[str, set[str]], tmp_path: Path) -> None:
    assert emitted(_module(tmp_path, text)) == kinds


def test_a_kind_that_cannot_be_read_is_not_overlooked(tmp_path: Path) -> None:
    with pytest.raises(Unclear):
        emitted(_module(tmp_path, 'def f(w):\n w.event(names[3], "x")'))


def test_a_kind_more_or_less_on_the_page_is_found() -> None:
    kinds = emitted(ROOT / "elastic")
    line = next(x for x in PAGE.splitlines() if x.startswith("| `worker-lost`"))
    assert documented(PAGE.replace(line, ""))[0] != kinds
    assert documented(PAGE.replace(line, f"{line}\n| `worker-found` | info | | |"))[0] != kinds
    assert documented(PAGE.replace(line, line.replace("warning", "info")))[0] != kinds
