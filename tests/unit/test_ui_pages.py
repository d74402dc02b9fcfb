"""The pages: what is on them, and that names of users stay text."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pytest
from cli_fake import TOTALS, WC, detail, error, move, summary, under_way
from ui_fake import Living

from elastic.control.tasks import Reports
from elastic.control.ui import pages
from elastic.control.ui.pages import Page, Pages
from elastic.control.ui.watching import Sample, Shown, take
from elastic.model.assignment import Epoch
from elastic.model.events import Event
from elastic.model.ids import ComponentId, TopologyName
from elastic.model.records import TopologyStatus
from elastic.model.views import CheckpointView, ExecutorView, TopologyDetail

EVIL = '<script>alert("1")</script>&'
EMPTY = {"br", "meta", "link", "path", "rect", "line", "polyline"}


def shown(made: TopologyDetail | None = None, **changes: object) -> Shown:
    made = made or detail(moved=TOTALS, decided=(error(3.0),), policy="thresholds")
    client = Living(
        details={str(made.summary.name): made},
        topologies=[
            made.summary,
            summary(name="old", status=TopologyStatus.FAILED, reason="its code raised"),
        ],
    )
    name = str(made.summary.name)
    all_of_it = Shown(
        take(client),
        moves=(under_way(4), move(3)),
        events=(error(2.0), error(1.0)),
        history={name: (Sample(1.0, {"lines": 5.0}), Sample(2.0, {"lines": 6.0, "count": 1.0}))},
        reports={name: Reports().then(made)},
    )
    return replace(all_of_it, **changes)  # type: ignore[arg-type]


def get(address: str, what: Shown | None = None) -> Page:
    return Pages().page(address, what or shown())


class Reader(HTMLParser):
    """Text and tags; says what is opened and not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [str(v) for k, v in attrs if k == "href"]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in EMPTY:
            assert self.open and self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"


def read(page: Page) -> Reader:
    reader = Reader()
    for html in page.sections.values():
        reader.feed(html)
    assert not reader.open
    reader.text = " ".join(reader.text.split())
    return reader


ADDRESSES = {
    "/": ["word-count", "active", "old", "its code raised", "node-1", "starting", "4", "1,234/s"],
    "/topologies/word-count": [
        *(
            "lines",
            "count[2-3]",
            "1,230/s",
            "thresholds",
            "waits: worker word-count@node-2/0 has not registered yet",
        ),
        *("20.0 ms", "2 tasks moved", "Tuples per second", "ZeroDivisionError"),
    ],
    "/topologies/word-count/tasks": ["count[4-5]", "word-count@node-2/0"],
    "/topologies/word-count/moves/3": [
        "moved",
        "2.0 KiB",
        "12.5 ms",
        "20.0 ms",
        "stands still",
        "word-count@node-2/0",
    ],
    "/topologies/word-count/moves/4": ["paused", "task 2 waits for fences", "running"],
    "/topologies/old": ["failed", "its code raised"],
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_each_page_says_what_it_is_for(address: str) -> None:
    page = get(address)
    text = read(page).text
    assert page.found and all(word in text for word in ADDRESSES[address]), text


@pytest.mark.parametrize(
    "address",
    ["/nowhere", "/topologies/none", "/topologies/word-count/moves/99", "/topologies/word-count/x", "//"],
)
def test_what_is_not_there_is_said(address: str) -> None:
    page = get(address)
    assert not page.found and read(page).text


def test_checkpoints_are_told_of_topologies_that_take_any() -> None:
    assert "checkpoint" not in read(get("/topologies/word-count")).text
    c = CheckpointView(5.0, 22, 1.0, 0.8, 2048, 0, "no room", 3)
    text = read(get("/topologies/word-count", shown(detail(checkpoints=c)))).text
    assert "2.0 KiB in 0.80 s; the next was given up: no room; went back 3 times" in text
    assert (
        "every 5 s, none yet"
        in read(get("/topologies/word-count", shown(detail(checkpoints=CheckpointView(5.0))))).text
    )


def test_links_lead_to_pages() -> None:
    seen, to_see = set(), ["/"]
    while to_see:
        address = to_see.pop()
        if address in seen:
            continue
        seen.add(address)
        page = get(address)
        assert page.found, address
        here = address.partition("?")[0]
        to_see += [here + link if link.startswith("?") else link for link in read(page).links]
    assert {"/topologies/word-count/moves/3", "/topologies/word-count/tasks?sort=queued"} <= seen


@pytest.mark.parametrize("address", ["/", f"/topologies/{pages.quote(EVIL, safe='')}", "tasks", "moves/3"])
def test_what_users_name_is_text(address: str) -> None:
    made = detail()
    name = TopologyName(EVIL)
    components = tuple(replace(c, id=ComponentId(EVIL + c.id), custom={EVIL: 1.0}) for c in made.components)
    evil = replace(
        made,
        summary=summary(name=name, reason=EVIL),
        components=components,
        spec=replace(
            made.spec,
            components=tuple(
                replace(
                    c,
                    id=ComponentId(EVIL + c.id),
                    inputs=tuple(replace(i, source=ComponentId(EVIL + i.source)) for i in c.inputs),
                )
                for c in made.spec.components
            ),
        ),
        executors=tuple(replace(e, component=ComponentId(EVIL + e.component)) for e in made.executors),
        waits=(EVIL,),
        errors=(Event(1.0, "x", EVIL),),
    )
    moves = (replace(move(3, why=EVIL), topology=name),)
    history = {EVIL: (Sample(1.0, {str(c.id): 1.0 for c in components}),)}
    what = shown(
        evil, moves=moves, trouble=EVIL, events=(Event(1.0, "x", EVIL, topology=EVIL),), history=history
    )
    if "/" not in address.removeprefix("moves/"):
        address = f"/topologies/{pages.quote(EVIL, safe='')}/{address}"
    page = get(address, what)
    reader = read(page)
    assert page.found and "script" not in reader.tags
    assert EVIL in reader.text
    document = Pages().whole(page, "/live?page=" + address)
    assert document.count("<script") == 1


def test_trouble_is_on_every_page() -> None:
    for address in [*ADDRESSES, "/nowhere"]:
        assert "no Nimbus answers" in read(get(address, shown(trouble="no Nimbus answers"))).text


def test_tasks_are_sorted_as_asked() -> None:
    made = detail()
    busy = {
        "task": ["1", "2", "3", "4", "5"],
        "component": ["2", "3", "4", "5", "1"],
        "nothing": ["1", "2", "3", "4", "5"],
    }
    for key, expected in busy.items():
        html = get(f"/topologies/word-count/tasks?sort={key}", shown(made)).sections["tasks"]
        rows = html.partition("<tbody>")[2].split("<tr>")[1:]
        assert [row.partition('class="n">')[2].partition("<")[0] for row in rows] == expected, key


def test_a_worker_with_many_executors_says_how_many_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "EXECUTORS_OF_A_WORKER", 1)
    assert "and 1 more" in read(get("/topologies/word-count")).text


def test_executors_without_a_place_are_named() -> None:
    waiting = ExecutorView("late[9-9]", ComponentId("count"), 9, 9)
    made = detail()
    text = read(
        get("/topologies/word-count", shown(replace(made, executors=(*made.executors, waiting))))
    ).text
    assert "Without a place: late[9-9]" in text


def test_a_topology_that_has_just_begun_can_be_shown() -> None:
    bare = detail(
        workers=(), executors=(), waits=(), errors=(), assignment=replace(detail().assignment, epoch=Epoch(0))
    )
    what = shown(bare, history={}, reports={}, moves=(), events=())
    for address in ("/", f"/topologies/{WC}", f"/topologies/{WC}/tasks"):
        assert get(address, what).found
