"""How good schedulers' placements are, by the traffic between nodes, and how long a decision takes.

On every small chain (up to 8 executors on 2 and 3 nodes) the least traffic that the scheduler's own constraints allow is found by trying
everything; a figure is how far above it the scheduler's placement lies, as a share of all traffic. The large case has 10,000 executors
on 1,000 nodes with 100,000 pairs. A decision is computed in one thread that waits for nothing: what counts is its CPU
time, which is what it takes by the clock where a core is free.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import mean

from benchmarks.harness import Goal, Session, Wrong
from benchmarks.placements import Case, best_cut, chain, even_enough, large, small_chains
from elastic.scheduler.registry import Choice, choose

NAME = "schedulers"
SUMMARY = "distance of T-Storm's and OTD's placements from the best, and the time of one decision"

GAMMAS = (1.0, 1.5, 3.0)
CYCLES = 100


def run(session: Session) -> None:
    """See the module."""
    cases = list(small_chains(6 if session.quick else 8))
    session.progress(f"{len(cases)} small chains")
    for gamma in GAMMAS:
        name = f"T-Storm, gamma {gamma:g}"
        if session.wants(name):
            _distance(session, name, cases, choose(f"tstorm --gamma {gamma:g}"), gamma)
    if session.wants("OTD"):
        _distance(session, "OTD, until it moves nothing", cases, choose("otd --share 0"), None)
    _paper(session)
    if session.wants("decision"):
        _decisions(session)


def _distance(session: Session, name: str, cases: list[Case], choice: Choice, gamma: float | None) -> None:
    """Print how far from the best the answers are."""
    before, after, optimal = [], [], 0
    for case in cases:
        executors, nodes = len(case.load.executors), len(case.cluster.nodes)
        allowed = even_enough(executors, nodes, gamma) if gamma is not None else _low_enough(choice)
        best = best_cut(case, allowed)
        settled = settle(case, choice, 1 if gamma is not None else CYCLES)
        if settled.cut() < best - 1e-6:
            raise Wrong(f"{name} is better than the best: {settled.cut():g} < {best:g} tuples/s")
        before.append((case.cut() - best) / case.traffic)
        after.append((settled.cut() - best) / case.traffic)
        optimal += settled.cut() <= best + 1e-6
    session.record(f"{name}: round robin's distance", [100 * mean(before)], "% of traffic")
    session.record(f"{name}: distance, mean", [100 * mean(after)], "% of traffic")
    session.record(f"{name}: distance, worst", [100 * max(after)], "% of traffic")
    session.record(f"{name}: best found", [100 * optimal / len(cases)], "% of cases")


def settle(case: Case, choice: Choice, cycles: int) -> Case:
    """The case after so many periods, or when nothing changes any more.

    Raises:
        Wrong: A period has made the traffic between nodes worse, or it has not settled within 100 periods.
    """
    for _ in range(cycles):
        decision = case.ask(choice)
        changed = case.after(decision)
        if changed.current == case.current:
            return case
        if changed.cut() > case.cut() + 1e-6:
            raise Wrong(f"{choice} made the traffic worse: {case.cut():g} -> {changed.cut():g} tuples/s")
        case = changed
    if cycles >= CYCLES:
        raise Wrong(f"{choice} still moves executors after {cycles} periods")
    return case


def _low_enough(choice: Choice) -> Callable[[Sequence[int], Sequence[float]], bool]:
    high: float = choice.params.high

    def allowed(count: object, cores: Sequence[float]) -> bool:
        return max(cores) <= high + 1e-9

    return allowed


def _paper(session: Session) -> None:
    """The chains of T-Storm (2014), section V, on its ten nodes."""
    topologies = {"Throughput Test": (5, 15, 15), "Word Count": (2, 5, 5, 5)}
    for name, parts in topologies.items():
        for gamma in (1.0, 1.7, 6.0):
            label = f"{name}, gamma {gamma:g}"
            if not session.wants(label):
                continue
            case = chain(parts, 10, cpu=0.02)
            settled = settle(case, choose(f"tstorm --gamma {gamma:g}"), 1)
            a = next(iter(settled.current.values()))
            session.record(f"{label}: nodes", [len({s.node for s in a.workers.values()})], "nodes")
            session.record(f"{label}: between nodes", [100 * settled.cut() / case.traffic], "% of traffic")
            session.record(
                f"{label}: between nodes, round robin", [100 * case.cut() / case.traffic], "% of traffic"
            )


def _decisions(session: Session) -> None:
    case = large()
    session.progress(
        f"{len(case.load.executors):,} executors, {len(case.cluster.nodes):,} nodes, {len(case.load.traffic):,} pairs"
    )

    clock: dict[str, list[float]] = {}

    def timed(text: str) -> Callable[[], float]:
        choice = choose(text)

        def once() -> float:
            began, by_clock = time.process_time(), time.perf_counter()
            decision = case.ask(choice)
            took = time.process_time() - began
            clock.setdefault(f"decision: {text}, by the clock", []).append(time.perf_counter() - by_clock)
            if not decision.reasons:
                raise Wrong(f"{text} gave no reason")
            return took

        return once

    names = (
        "roundrobin",
        "tstorm",
        "tstorm --gamma 2 --workers-per-node 0",
        "otd",
        "otd --high 0.4 --low 0.3",
    )
    values = session.interleave({f"decision: {n}": timed(n) for n in names}, unit="s of CPU")
    session.report(values, unit="s of CPU", goals={(n, ""): Goal(1.0, at_least=False) for n in values})
    session.report(clock, unit="s")
