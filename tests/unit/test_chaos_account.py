"""What a kill may cost, and that it was said: each fault that is planted in a record or its events is found."""

from __future__ import annotations

import dataclasses
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from chaos.account import judge
from chaos.aims import Aim, aim
from chaos.check import check
from chaos.cluster import NotNow, Process, Stuck
from chaos.cut import KINDS as CUT_IN
from chaos.cut import Cuts
from chaos.lag import Lag
from chaos.moves import Asked, Moves
from chaos.plan import ACTIONS, COST, FREE, FROZEN, Round, choose
from chaos.rounds import Kill, Rounds
from chaos.run import Options, Part, Run
from chaos.shape import Shape
from chaos.watch import STEPS
from elastic.migration.record import Phase
from elastic.model.ids import Incarnation, worker_of

SECOND = 1_000_000_000
FREE_KILLS: list[Kill] = []


def kill(owned: set[int], *, at: int = 12, surely: bool = True) -> Kill:
    round = choose(1, 1, cost=True, hazelcast=False)
    return Kill(
        round,
        at * SECOND,
        at * SECOND + 1,
        at,
        "paused",
        [1],
        owned,
        set(owned) if surely else set(),
        {"t@n/0"},
    )


def lost(tasks: str, *, at: float = 13.0) -> dict[str, Any]:
    return {"kind": "state-lost", "message": "", "time": at, "details": {"tasks": tasks}}


def record(**changes: Any) -> dict[str, Any]:
    """A key of spout task 1 by count task 5 and sink task 16, as `chaos.check --json` gives it."""
    key = {
        "key": "1.a.0",
        "tasks": [5],
        "sinks": [16],
        "arrived": 9,
        "emitted": 10,
        "first": 1 * SECOND,
        "last": 12 * SECOND,
        "lost": [],
        "doubled": [],
        "reordered": [],
        "forgotten": [],
        "mixed": [],
    }
    found: dict[str, Any] = {kind: [] for kind in ("overlaps", "recounts", "strayed", "invented", "unknown")}
    return {"keys": {"1.a.0": {**key, **changes}}, **found}


def forgotten(count: int, expected: int, hole: int) -> list[dict[str, Any]]:
    """That a state of task 5 had counted so many, as sink 16 noted it down."""
    times = {"after": 11 * SECOND, "at": 14 * SECOND}
    return [{"count": count, "expected": expected, "hole": hole, "task": 5, "sink": 16, **times}]


def recount(life: str, already: int = 0, *, after: int = 11, first: int = 14) -> dict[str, Any]:
    times = {"after": after * SECOND, "first": first * SECOND}
    return {"sink": 16, "life": life, "already": already, "expected": 500, **times}


def lives(*spans: tuple[int, int, int]) -> dict[str, Any]:
    """One key of each life of spout task 1: when the first and the last arrived, and how many were emitted."""
    keys = {}
    for life, (first, last, emitted) in enumerate(spans, 10):
        (key,) = record(first=first * SECOND, last=last * SECOND, emitted=emitted)["keys"].values()
        keys[f"1.{life:x}.0"] = {**key, "key": f"1.{life:x}.0"}
    return {**record(), "keys": keys}


HOLE = [{"first": 4, "last": 5, "after": 11 * SECOND, "before": 14 * SECOND}]
FORGOTTEN = forgotten(0, 4, 2)


def test_what_arrived_once_and_in_order_is_as_promised() -> None:
    assert judge(record(), [], FREE_KILLS, cost=False) == []
    assert judge(check([]).full(), [], [], cost=False) == ["nothing has arrived"]


def test_a_loss_on_the_way_of_a_killed_task_is_accounted_for_when_it_was_said() -> None:
    report = record(lost=HOLE, forgotten=FORGOTTEN)
    assert judge(report, [lost("5, 6")], [kill({5, 6})], cost=True) == []


@pytest.mark.parametrize(
    ("report", "events", "kills", "cost", "says"),
    [
        (record(lost=HOLE), [], FREE_KILLS, False, "4 to 5 are lost"),
        (record(lost=HOLE), [lost("5")], [kill({5})], False, "4 to 5 are lost"),
        (record(lost=HOLE), [lost("6")], [kill({6})], True, "4 to 5 are lost"),
        (record(lost=HOLE), [lost("5")], [kill({5}, at=15)], True, "4 to 5 are lost"),
        (
            record(lost=[{**HOLE[0], "after": 40 * SECOND, "before": 0}]),
            [lost("5")],
            [kill({5})],
            True,
            "4 to 5 are lost",
        ),
        (record(doubled=[{"n": 3, "at": SECOND}]), [lost("5")], [kill({5})], True, "3 came again"),
        (record(reordered=[{"n": 3, "at": SECOND}]), [lost("5")], [kill({5})], True, "3 came late"),
        (record(mixed=[{"n": 8, "at": SECOND}]), [lost("5")], [kill({5})], True, "none that there was"),
        (record(forgotten=FORGOTTEN), [lost("6")], [kill({6})], True, "had counted 0 instead of 4"),
        (record(emitted=-1), [lost("5")], [kill({5})], True, "began anew"),
        (record(emitted=-1, last=1012 * SECOND), [lost("1")], [kill({1})], True, "began anew"),
        (record(emitted=-1), [], [kill({1}, surely=False)], True, "began anew"),
        (
            lives((1, 100, -1), (101, 5000, -1), (5002, 9000, 10)),
            [lost("1", at=5001)],
            [kill({1}, at=5000)],
            True,
            "1.a: its spout began anew",
        ),
        (
            lives((1, 100, -1), (101, 105, -1), (106, 9000, 10)),
            [lost("1", at=100)],
            [kill({1}, at=99)],
            True,
            "1.b: its spout began anew",
        ),
        (record(forgotten=forgotten(300, 500, 0)), [lost("5")], [kill({5})], True, "counted 300 instead of"),
        (record(forgotten=forgotten(300, 500, 9)), [lost("5")], [kill({5})], True, "counted 300 instead of"),
        (
            record(forgotten=forgotten(700, 500, 0)),
            [lost("16")],
            [kill({16})],
            True,
            "counted 700 instead of",
        ),
        (
            record(forgotten=forgotten(504, 500, 9)),
            [lost("16")],
            [kill({16})],
            True,
            "counted 504 instead of",
        ),
        (record(forgotten=forgotten(509, 500, 9)), [lost("5")], [kill({5})], True, "counted 509 instead of"),
        (record(forgotten=forgotten(0, 500, 0)), [lost("16")], [kill({16})], True, "counted 0 instead of"),
        (record(forgotten=FORGOTTEN), [], [kill({5}, surely=False)], True, "had counted 0 instead of 4"),
        (
            record(forgotten=FORGOTTEN),
            [lost("5", at=21), lost("6")],
            [kill({5, 6}, surely=False), kill({5}, at=20)],
            True,
            "had counted 0 instead of 4",
        ),
        (
            {**record(), "recounts": [recount(life) for life in "ab"]},
            [lost("16")],
            [kill({16})],
            True,
            "sink 16: b begins with 0",
        ),
        ({**record(), "recounts": [recount("a", 300)]}, [lost("16")], [kill({16})], True, "begins with 300"),
        (
            {**record(), "recounts": [recount("a")]},
            [lost("16", at=5001)],
            [kill({16}, at=5000)],
            True,
            "begins with 0",
        ),
        (
            {**record(), "recounts": [recount("a", after=9000, first=9001)]},
            [lost("16")],
            [kill({16})],
            True,
            "begins with 0",
        ),
        ({**record(), "recounts": [recount("a")]}, [], [kill({16}, surely=False)], True, "begins with 0"),
        ({**record(), "strayed": ["1.a.0"]}, [lost("5")], [kill({5})], True, "another task: 1.a.0"),
        ({**record(), "invented": ["1.a.0"]}, [lost("5")], [kill({5})], True, "never emitted: 1.a.0"),
        (record(), [{"kind": "move-given-up", "message": "3"}], FREE_KILLS, False, "move-given-up was said"),
        ({**record(), "overlaps": ["sink 16: a and b"]}, [lost("16")], [kill({16})], True, "two at once"),
        (
            {**record(), "recounts": [recount("a")]},
            [lost("5")],
            [kill({5})],
            True,
            "begins with 0",
        ),
        (record(), [lost("5")], FREE_KILLS, False, "lost 1 times, and killed 0 times"),
        (record(), [lost("5"), lost("5")], [kill({5})], True, "lost 2 times, and killed 1 times"),
        (record(), [], [kill({5})], True, "that was not said"),
        (record(), [lost("5"), lost("5", at=14.0)], [kill({5}), kill({5}, at=20)], True, "that was not said"),
        (
            record(),
            [{"kind": "tuples-doubled", "message": "3"}],
            FREE_KILLS,
            False,
            "tuples-doubled was said",
        ),
        (
            record(),
            [{"kind": "worker-lost", "message": "x", "details": {"exit_code": 4}}],
            FREE_KILLS,
            False,
            "that nobody killed",
        ),
    ],
)
def test_each_planted_fault_is_found(
    report: dict[str, Any], events: list[dict[str, Any]], kills: list[Kill], cost: bool, says: str
) -> None:
    wrong = judge(report, events, kills, cost=cost)
    assert any(says in w for w in wrong), wrong


def test_what_waited_for_a_task_that_stood_still_arrives_so_much_later() -> None:
    late = record(lost=[{**HOLE[0], "after": 32 * SECOND, "before": 33 * SECOND}])
    moved = {"kind": "move-ended", "message": "x", "details": {"pause_ms": 4000}}
    long = {**moved, "details": {"pause_ms": 19_509.5}}
    for events, accounted in (([moved], False), ([moved, long], True)):
        wrong = judge(late, [lost("5"), *events], [kill({5})], cost=True)
        assert (wrong == []) is accounted, wrong


def test_each_thing_that_a_kill_may_cost_is_accounted_for() -> None:
    """Fewer than were lost since: it began anew. As many more as were lost: they were, behind a state that lives."""
    for found, task in (
        (record(forgotten=forgotten(2, 500, 2)), 5),
        (record(forgotten=forgotten(0, 500, 0)), 5),
        (record(forgotten=forgotten(509, 500, 9)), 16),
        ({**record(), "recounts": [recount("a")]}, 16),
        (record(emitted=-1), 1),
        (lives((1, 10, -1), (14, 9000, 10)), 1),
    ):
        assert judge(found, [lost(str(task))], [kill({task}, surely=False)], cost=True) == []
    twice = lives((1, 10, -1), (14, 20, -1), (24, 9000, 10))
    kills = [kill({1}), kill({1}, at=22)]
    assert judge(twice, [lost("1"), lost("1", at=23.0)], kills, cost=True) == []
    assert (
        judge(record(), [{"kind": "move-given-up", "message": "3"}], [kill({5}, surely=False)], cost=True)
        == []
    )


def test_what_an_interrupted_run_has_not_heard_of_is_no_fault() -> None:
    last = kill({5})
    last.unheard = True
    assert judge(record(forgotten=FORGOTTEN), [], [last], cost=True) == []


def test_a_round_follows_from_its_seed_and_number_alone() -> None:
    for number in range(50):
        for cost in (False, True):
            first, again = (choose(7, number, cost=cost, hazelcast=True) for _ in range(2))
            assert str(first) == str(again) and first.after == again.after
            assert first.step in (COST if cost else FREE)[first.victim]
            assert first.chance.random() == again.chance.random()


def test_every_victim_and_every_step_has_its_turn() -> None:
    rounds = [choose(1, n, cost=False, hazelcast=True) for n in range(2000)]
    assert {(r.victim, r.step) for r in rounds} == {(v, s) for v, steps in FREE.items() for s in steps}
    rounds = [choose(1, n, cost=True, hazelcast=True) for n in range(2000)]
    assert {(r.victim, r.step) for r in rounds} == {(v, s) for v, steps in COST.items() for s in steps}
    assert {r.action for r in rounds} == set(ACTIONS)
    rounds = [choose(1, n, cost=False, hazelcast=True) for n in range(2000)]
    only = [choose(1, n, cost=False, hazelcast=True, only=("nimbus", "saved")) for n in range(20)]
    assert {(r.victim, r.step) for r in only} == {("nimbus", "saved")}
    assert {r.step for r in rounds} == set(STEPS)


def test_everybody_who_can_be_frozen_has_a_turn_at_every_step() -> None:
    rounds = [choose(1, n, cost=True, hazelcast=False, frozen=True) for n in range(3000)]
    assert {(r.victim, r.step) for r in rounds} == {(v, s) for v, steps in FROZEN.items() for s in steps}
    assert all(r.frozen and " frozen at " in str(r) for r in rounds)


def test_a_worker_that_was_frozen_may_end_by_itself_and_no_other_may() -> None:
    frozen = kill({5})
    frozen.round = dataclasses.replace(frozen.round, frozen=True)
    ended = {
        "kind": "worker-lost",
        "message": "x",
        "worker": "t@n/0",
        "time": 14.0,
        "details": {"signal": "SIGALRM"},
    }
    assert judge(record(), [lost("5"), ended], [frozen], cost=True) == []
    assert judge(record(), [ended], [dataclasses.replace(frozen, owned=set(), surely=set())], cost=True) == []
    (wrong,) = judge(record(), [lost("5"), {**ended, "worker": "t@n/1"}], [frozen], cost=True)
    assert "that nobody killed" in wrong
    for other in (11.0, 9000.0):
        (wrong,) = judge(record(), [lost("5"), {**ended, "time": other}], [frozen], cost=True)
        assert "that nobody killed" in wrong, "it was frozen at another time"
    (wrong,) = judge(record(), [lost("5"), ended], [kill({5})], cost=True)
    assert "that nobody killed" in wrong


def rounds_of(watch: Any, release: Callable[[], object], **more: float) -> Any:
    """Rounds without a cluster.

    Args:
        release: As of the gate: lets on whoever is held there.
    """
    gate: Any = SimpleNamespace(release=release)
    none: Any = None
    return Rounds(none, "t", Shape(), watch, gate, none, say=lambda _: None, bound=1.0, **more)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes")
@pytest.mark.parametrize("interrupted", ["frozen", "before"])
def test_who_is_frozen_goes_on_whatever_happens_meanwhile(
    monkeypatch: pytest.MonkeyPatch, interrupted: str
) -> None:
    slept: list[float] = []

    def interrupt(seconds: float) -> None:
        slept.append(seconds)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        raise KeyboardInterrupt

    watch = SimpleNamespace(now=SimpleNamespace(view=SimpleNamespace(latest=0)), arm=lambda _: None)
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            process = Process.of(psutil.Process(child.pid), "worker")
            release = int if interrupted == "frozen" else lambda: interrupt(0.0)
            rounds = rounds_of(watch, release, session=10.0)
            monkeypatch.setattr(rounds, "_aim", lambda _: Aim(lambda: None, lambda _: [process], set(), ""))
            monkeypatch.setattr("chaos.rounds.time.sleep", interrupt)
            with pytest.raises(KeyboardInterrupt):
                rounds.run(Round(1, True, "other", "asked", "some", (), 0, 0, random.Random(1), frozen=True))
            assert os.waitid(os.P_PID, child.pid, os.WCONTINUED | os.WNOHANG), "it stands still for ever"
        finally:
            child.kill()
    assert not process.freeze() and not process.thaw()
    assert all(seconds > 10.0 for seconds in slept if interrupted == "frozen"), "longer than the session"


def test_nobody_is_hurt_by_a_round_that_has_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step comes just when its round waits no longer: whoever is frozen then stays so, and whoever is killed is in no account."""
    now = SimpleNamespace(view=SimpleNamespace(latest=0))
    triggers: list[Any] = []
    hurt: list[int] = []
    step = False
    watch = SimpleNamespace(now=now, arm=triggers.append, disarm=list)

    def release() -> int:
        nonlocal step
        step = True
        triggers[0](now)
        return 0

    rounds = rounds_of(watch, release)
    victim: Any = SimpleNamespace(pid=7, kill=lambda: not hurt.append(7))
    monkeypatch.setattr(rounds, "_aim", lambda _: Aim(lambda: None, lambda _: [victim], set(), ""))
    monkeypatch.setattr(rounds, "_due", lambda *_: step)
    monkeypatch.setattr("chaos.rounds.stage", lambda *_: "paused")
    monkeypatch.setattr("chaos.rounds.STEP", 0.0)
    assert rounds.run(Round(1, True, "other", "paused", "some", (), 0.0, 0.0, random.Random(1))) is None
    assert step and not hurt and not rounds.kills and len(rounds.missed) == 1


@pytest.mark.parametrize("interrupted", ["_await_death", "_say"])
def test_a_kill_counts_once_wherever_the_run_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, interrupted: str
) -> None:
    """While it waits for the death, nobody had taken it down: what it cost was a violation."""
    watch = SimpleNamespace(
        now=SimpleNamespace(view=SimpleNamespace(latest=0)), arm=lambda _: None, disarm=list
    )
    rounds = rounds_of(watch, int)
    victim: Any = SimpleNamespace(pid=7, kill=lambda: True)
    aim = Aim(lambda: None, lambda _: [victim], set(), "nothing")
    said = 0

    def interrupt(*_: object) -> None:
        nonlocal said
        said += 1
        if said == (2 if interrupted == "_say" else 1):
            raise KeyboardInterrupt

    monkeypatch.setattr(rounds, "_aim", lambda _: aim)
    monkeypatch.setattr(rounds, "_account", lambda kill, *_: kill.owned.add(5))
    monkeypatch.setattr(rounds, "_await_death", lambda _: None)
    monkeypatch.setattr(rounds, interrupted, interrupt)
    with pytest.raises(KeyboardInterrupt):
        rounds.run(Round(1, True, "other", "asked", "some", (), 0.0, 0.0, random.Random(1)))
    rounds.interrupted()
    (found,) = rounds.kills
    assert found.pids == [7] and found.owned == {5} and found.unheard


def test_a_round_in_which_nothing_moved_is_missed_and_a_kind_without_another_is_not_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moves: Any = Moves(Options(directory=str(tmp_path)))
    moves.done, moves.cluster = {}, SimpleNamespace(events=list)
    watch = SimpleNamespace(now=SimpleNamespace(view=SimpleNamespace(latest=3)))
    watch.wait = lambda what, true, limit: true(watch.now)
    rounds = SimpleNamespace(watch=watch, settle=time.monotonic)
    part = Part("moves", False, tmp_path)

    def refused() -> None:
        raise NotNow("there is no other node")

    def moved() -> None:
        watch.now.view.latest += 1

    asked = [("eight", moved), ("eight", refused), ("spout", refused), ("workers", lambda: None)]
    for number, (kind, ask) in enumerate(asked, 1):
        moves._round(rounds, part, kind, Asked("", ask), number, False)
    spout, workers = moves.not_done(part)
    assert "spout" in spout and "round 3: there is no other node" in spout
    assert "workers" in workers and "round 4: nothing began to move" in workers
    capsys.readouterr()
    moves.print_rounds(part)
    said = capsys.readouterr().out
    assert "1 eight: over after" in said and "1 eight missed; round 2" in said
    assert "spout: over" not in said and "workers: over" not in said


def test_how_long_the_machine_kept_the_run_waiting_is_of_the_time_since_it_was_asked_before() -> None:
    lag = Lag()
    lag.close()
    lag._longest = 5.0
    assert lag.take() == 5.0
    assert lag.take() == 0.0


@pytest.mark.parametrize("again", [False, True])
def test_what_a_dead_worker_has_saved_is_its_own_no_more_but_may_be_another_dead_one_s(again: bool) -> None:
    """A task goes from one worker of a node to another one of it, or elsewhere, and then the node dies."""
    first, second, other = Incarnation("t@n/0#1"), Incarnation("t@n/1#1"), Incarnation("t@m/0#1")
    living = {
        worker_of(i): SimpleNamespace(incarnation=i, worker=worker_of(i), pid=n)
        for n, i in enumerate((first, second, other))
    }
    marks = SimpleNamespace(saved={4: None}, has_restored=lambda task, attempt: False)
    move = SimpleNamespace(
        marks={first: SimpleNamespace(marks=marks)}, record=SimpleNamespace(tasks=[SimpleNamespace(task=4, target=other, attempt=0)])
    )  # fmt: skip

    def seen(at: float, owner: Incarnation) -> Any:
        standing = {4: SimpleNamespace(owner=owner, phase=Phase.COMMITTED)}
        return SimpleNamespace(at=at, workers=living, view=SimpleNamespace(standing=standing, moves=[move]))

    now = second if again else first
    rounds: Any = Rounds.__new__(Rounds)
    done = Kill(Round(1, True, "bystander-node", "ended", "some", (), 0.0, 0.0, random.Random(1)), at=10**9)
    rounds._account(
        done, Aim(lambda: None, lambda _: [], {4}, "", node="n"), [seen(0.5, now), seen(2.0, other)]
    )
    assert done.owned == ({4} if again else set())


@pytest.mark.parametrize("forgotten", [False, True])
def test_what_only_the_two_killed_nodes_have_saved_may_be_lost_where_it_was_in_memory(
    forgotten: bool,
) -> None:
    source, target = Incarnation("t@n/0#1"), Incarnation("t@m/0#1")
    living = {
        worker_of(i): SimpleNamespace(incarnation=i, worker=worker_of(i), pid=9) for i in (source, target)
    }
    marked = SimpleNamespace(marks=SimpleNamespace(saved={4: None}, has_restored=lambda task, attempt: False))
    part = SimpleNamespace(task=4, target=target, attempt=0)
    move = SimpleNamespace(marks={source: marked}, record=SimpleNamespace(tasks=[part]))
    standing = {4: SimpleNamespace(owner=source, phase=Phase.SAVED)}
    seen: Any = SimpleNamespace(at=0.5, workers=living, view=SimpleNamespace(standing=standing, moves=[move]))
    rounds: Any = Rounds.__new__(Rounds)
    done = Kill(Round(1, True, "both-nodes", "saved", "some", (), 0.0, 0.0, random.Random(1)), at=10**9)
    rounds._account(
        done, Aim(lambda: None, lambda _: [], {4}, "", node="n", other="m", forgotten=forgotten), [seen]
    )
    assert done.owned == ({4} if forgotten else set()) and not done.surely


class Aimed:
    """What a round of these comes to where tasks 1 to 6 run on two nodes of three."""

    def __init__(self, *, action: str, victim: str = "standby", hold: tuple[str, ...] = ()) -> None:
        self.asked: list[Any] = []
        self.places = {"t@a/0": [1, 4], "t@a/1": [2, 5], "t@b/0": [3, 6]}
        self.options = SimpleNamespace(store="embedded")
        self.shape = SimpleNamespace(tasks=range(1, 7), held=(1, 2, 3), count_tasks=(4, 5, 6))
        view = SimpleNamespace(latest=3, moves=[])
        self.now = SimpleNamespace(view=view, workers={})
        self.client = SimpleNamespace(
            move=lambda name, what, to, wait: self.asked.append((what, to)),
            abort_move=lambda name, why: self.asked.append(("abort", why)),
        )
        round = Round(1, False, victim, "recorded", action, hold, 0.0, 0.0, random.Random(1))
        me: Any = self
        self.aim = aim(me, me, "t", me, round)

    def by_worker(self) -> dict[str, list[int]]:
        return self.places

    def nodes(self) -> list[str]:
        return ["a", "b", "c"]

    def wait(self, what: str, true: Any, limit: float) -> bool:
        self.asked.append(what)
        self.now.view.latest += 1  # it has begun, and is over
        return bool(true(self.now))

    def nimbus(self, leading: bool) -> str:
        return "standby"

    def store(self, node: str) -> str:
        return f"store of {node}"

    def supervisor(self, node: str) -> str:
        return f"supervisor of {node}"


def test_a_move_may_be_aborted_at_a_step_of_it() -> None:
    aimed = Aimed(action="abort")
    aimed.aim.act()
    (what, to), step, aborted = aimed.asked
    assert what and to in ("a", "b", "c") and step in STEPS and aborted == ("abort", "chaos")
    assert step in aimed.aim.what
    assert "aborted when saved" in Aimed(action="abort", hold=("set_state",)).aim.what
    plain = Aimed(action="some")
    plain.aim.act()
    assert len(plain.asked) == 1


def test_somebody_who_has_no_part_in_it_is_one_who_has_none() -> None:
    aimed = Aimed(action="some", victim="store-bystander")
    (store,) = aimed.aim.victims(aimed.now)
    assert store not in {f"store of {aimed.aim.source.partition('@')[2][0]}", f"store of {aimed.aim.target}"}
    aimed = Aimed(action="some", victim="bystander-supervisor")
    assert aimed.aim.victims(aimed.now) == [f"supervisor of {aimed.aim.node}"]


def cut_of(kind: str, seed: int) -> tuple[str, list[tuple[Any, ...]]]:
    """What one cut has moved, in words, and what is asked of Nimbus. Node-3 is beyond."""
    asked: list[tuple[Any, ...]] = []
    cuts: Any = Cuts.__new__(Cuts)
    cuts.cluster = SimpleNamespace(
        client=SimpleNamespace(
            move=lambda name, what, to, wait: asked.append(("move", what, to)),
            rebalance=lambda name, workers, wait, share: asked.append(("rebalance", workers)),
            drain_node=lambda node, wait: asked.append(("drain", node)),
            add_nodes=lambda count, wait: asked.append(("add", count)),
        )
    )
    places = {"t@node-1/0": [1, 4, 5], "t@node-2/0": [2, 6], "t@node-3/0": [3, 7, 8]}
    rounds: Any = SimpleNamespace(
        by_worker=lambda: places, nodes=lambda: ["node-1", "node-2", "node-3"], shape=Shape()
    )
    what, act = cuts._move(rounds, "t", kind, random.Random(seed))
    act()
    return what, asked


def test_each_kind_of_move_is_cut_in_and_goes_over_the_link() -> None:
    for seed in range(20):
        for kind in ("some", "worker", "spout"):
            what, [(_, tasks, target)] = cut_of(kind, seed)
            assert ("node-3" in what.partition(" to ")[0]) != (target == "node-3"), what
            assert kind != "spout" or tasks in ("1", "2", "3")
            assert kind != "worker" or tasks in ("1,4,5", "2,6", "3,7,8")
        assert cut_of("rebalance", seed)[1][0][1] in (2, 4, 5, 6)
        (drained, added) = cut_of("drain", seed)[1]
        assert drained in (("drain", "node-1"), ("drain", "node-2")) and added == ("add", 1)
    assert set(CUT_IN) == {"some", "worker", "spout", "rebalance", "drain"}


@pytest.mark.parametrize(("first", "kills"), [(1, 10), (45, 10), (17, 1)])
def test_as_many_cuts_are_made_as_asked_whatever_number_is_the_first(first: int, kills: int) -> None:
    cuts, rounds, part = cuts_of(first, kills)
    cuts._round = lambda rounds, part, number, chance, flood: part.kills.append(number)
    cuts.rounds(rounds, part, 1.0)
    assert part.kills == list(range(first, first + kills))


def test_cuts_of_which_no_step_comes_are_a_violation() -> None:
    cuts, rounds, part = cuts_of(25, 2)

    def missed(*_: object) -> None:
        raise NotNow("its step did not come")

    cuts._round = missed
    with pytest.raises(Stuck, match="did not come to their step"):
        cuts.rounds(rounds, part, 1.0)
    assert not part.kills and len(part.missed) == 16


def cuts_of(first: int, kills: int) -> tuple[Any, Any, Part]:
    """Cuts without a cluster, and with rounds in which nothing happens."""
    cuts: Any = Cuts.__new__(Cuts)
    cuts.options = Options(kills=kills, first=first)
    cuts.pace = cuts.enough = cuts.spread = cuts.say = cuts.after_round = lambda *_, **__: None
    return cuts, SimpleNamespace(settle=lambda limit: limit), Part("short", False, Path())


def test_a_run_in_which_nobody_was_killed_has_tried_nothing(tmp_path: Path) -> None:
    run = Run(Options(directory=str(tmp_path)))
    missed = Part(
        "free", False, tmp_path, missed=["round 1: its step did not come", "round 2: nobody was there"]
    )
    assert run.not_done(missed) == ["nobody was killed in any of 2 rounds; round 2: nobody was there"]
    missed.kills.append(kill(set()))
    assert run.not_done(missed) == []
