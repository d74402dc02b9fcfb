"""What can be asked about nodes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import replace

from elastic.coordination import paths
from elastic.coordination.base import Create, Delete, Operation, Set
from elastic.errors import ConfigError, DeadlineExceeded, NotFound, Refused
from elastic.model.codec import encode
from elastic.model.events import Event, Severity
from elastic.model.ids import NodeId, node_of
from elastic.model.records import MAX_NODES, MAX_SLOTS, WantedNode
from elastic.model.views import NodeSummary
from elastic.model.words import counted
from elastic.nimbus.deciding import draining, placing
from elastic.nimbus.observing.facts import Facts
from elastic.nimbus.observing.mirror import FORCE
from elastic.nimbus.reign import Reign
from elastic.nimbus.requests import answers
from elastic.nimbus.requests.lookup import stateful_on

_SENTENCES = 5


def nodes(reign: Reign) -> tuple[NodeSummary, ...]:
    """See `Nimbus.nodes`."""
    return answers.node_summaries(reign.facts(), reign.reports.nodes())


def add_nodes(reign: Reign, count: int, slots: int | None, host: str, wait: float) -> tuple[NodeId, ...]:
    """See `Nimbus.add_nodes`."""
    slots = reign.options.node_slots if slots is None else slots
    if not 1 <= count <= MAX_NODES or not 1 <= slots <= MAX_SLOTS:
        raise ConfigError(
            f"cannot add {count} nodes with {slots} slots: 1 to {MAX_NODES} nodes, each with 1 to {MAX_SLOTS} slots"
        )
    with reign.deciding() as facts:
        taken = {*facts.nodes, *facts.drains, *facts.missing()}
        taken.update(NodeId(n) for n in reign.coordination.children(paths.WANTED) or ())
        free = (NodeId(f"node-{i}") for i in itertools.count(1))
        new = tuple(itertools.islice((n for n in free if n not in taken), count))
        data = encode(WantedNode(slots, host))
        reign.commit([Create(paths.wanted(n), data) for n in new])
        for node in new:
            reign.tell(Event(time.time(), "node-wanted", f"node {node} is to be started", node=node))
    reign.wait_for(
        lambda f: all(n in f.wanted for n in new), reign.options.answer_timeout, "nodes were added"
    )
    if wait > 0 and not reign.wait_for(
        lambda f: all(n in f.nodes for n in new), wait, "nodes were being added"
    ):
        missing = ", ".join(n for n in new if n not in reign.facts().nodes)
        if missing:
            raise DeadlineExceeded(
                f"not there after {wait:g} s: {missing}",
                remedy="they are still wanted; the launcher's log (launcher.log in the cluster's directory) says why they do not start",
            )
    return new


def drain_node(reign: Reign, name: str, wait: float, force: bool) -> None:
    """See `Nimbus.drain_node`."""
    node = NodeId(name)
    with reign.deciding() as facts:
        if node not in facts.nodes and node not in facts.wanted:
            known = ", ".join(sorted({*facts.nodes, *facts.wanted})) or "none"
            raise NotFound(f"there is no node {name!r}", remedy=f"there are: {known}")
        # With moves nothing is lost, as long as its workers live to hand it over.
        holding = [] if node in facts.nodes else stateful_on(facts, node)
        ours = node in facts.wanted
        again = _tried_again(reign, facts, node)
        reign.commit([_mark(facts, node, force), *_at_once(facts, node), *again])
        loss = f"; the state of {', '.join(holding)} there is lost" if holding else ""
        reign.tell(
            Event(
                time.time(),
                "node-draining",
                f"node {name} is being drained{loss}",
                Severity.WARNING if holding else Severity.INFO,
                node=name,
            )
        )
        if node in facts.drains and not force:
            # What was said of it before is as it was, and nobody would say it again.
            for t in facts.in_order():
                if workers := draining.kept(t, facts).get(node):
                    reign.tell(draining.told(t, node, workers, facts.now))

    def is_known(f: Facts) -> bool:
        # Of one that has not come the mark may be gone again by now.
        return node in f.drains or (node not in f.wanted and node not in f.nodes)

    reign.wait_for(is_known, reign.options.answer_timeout, f"node {name!r} was drained")

    def done(f: Facts) -> bool:
        if ours:
            return node not in f.drains
        return node not in f.nodes or (not f.assigned_to(node) and not f.living_on(node))

    written = {op.path: op.version for op in again}

    def over(f: Facts) -> bool:
        return done(f) or bool(not force and _given_up(reign, f, node, written))

    in_time = wait <= 0 or reign.wait_for(over, wait, f"node {name!r} was being drained")
    if wait > 0 and not force and (stay := _given_up(reign, reign.facts(), node, written)):
        more = f"; and {len(stay) - _SENTENCES} more" if len(stay) > _SENTENCES else ""
        raise Refused(
            f"node {name!r} is not empty: {counted(len(stay), 'task')} cannot be moved: {'; '.join(stay[:_SENTENCES])}{more}",
            remedy="it gets nothing new; mend the cause and ask again, or have them begin elsewhere without what they have, with --force",
        )
    if not in_time:
        raise DeadlineExceeded(
            f"node {name!r} was not drained after {wait:g} s: {_why(reign, node)}",
            remedy="it goes on draining, and gets nothing new",
        )


def _mark(facts: Facts, node: NodeId, force: bool) -> Operation:
    data = FORCE if force else b""
    return Set(paths.drain(node), data) if node in facts.drains else Create(paths.drain(node), data)


def _at_once(facts: Facts, node: NodeId) -> list[Operation]:
    """A node that has not come yet holds nothing: nobody need start it any more."""
    if node in facts.wanted and node not in facts.nodes and not facts.assigned_to(node):
        return [Delete(paths.wanted(node))]
    return []


def _given_up(reign: Reign, facts: Facts, node: NodeId, written: Mapping[str, int]) -> list[str]:
    """Why the tasks on a node stay there, if all do until somebody asks again; none while something there is still to be moved.

    Args:
        written: The plans that a request has written, with the version that each had before.
    """
    result: list[str] = []
    for t in facts.in_order():
        if t.assignment is None or not t.running:
            continue
        there = sorted(n for n, w in t.assignment.place_of().items() if node_of(w) == node)
        if not there:
            continue
        failed = placing.failed(t, reign.rules)
        if written.get(paths.plan(t.name), -1) == t.plan_version or not failed.keys() >= set(there):
            return []
        result += [f"task {n} of {t.name}: {failed[n]}" for n in there]
    return result


def _tried_again(reign: Reign, facts: Facts, node: NodeId) -> list[Set]:
    """What could not be moved away from there, or was not to be, is tried anew."""
    result: list[Set] = []
    for t in facts.topologies.values():
        if t.plan is None or t.assignment is None:
            continue
        # What an abort came too late for goes there all the same.
        places = {**t.assignment.place_of(), **{n: w for w, going in t.beyond_return.items() for n in going}}
        there = [n for n, w in places.items() if node_of(w) == node]
        anew, over = t.plan.without(there), bool(placing.stuck(t, reign.rules))
        if there and t.plan.halted:
            # Nothing else of it is wanted any more, whether or not that has been written already.
            anew = replace(anew, assignment=t.base or t.plan.assignment, halted="")
            over = True
        if anew != t.plan:
            if over:  # nobody else is at it any more
                why = f"node {node} is being drained"
                anew = replace(anew, why=why, asked=facts.now, share=0.0, earlier=())
            else:
                anew = anew.asked_again(there, facts.now)
            result.append(Set(paths.plan(t.name), encode(anew), t.plan_version))
    return result


def _why(reign: Reign, node: NodeId) -> str:
    facts = reign.facts()
    sentences = []
    for t in facts.in_order():
        if t.assignment is None or not any(s.node == node for s in t.assignment.workers.values()):
            continue
        if workers := draining.kept(t, facts).get(node):
            sentences.append(draining.no_place(workers))
        sentences += [*placing.waits(t, facts, reign.rules), *reign.move_log.waits(t.name)]
    if sentences:
        more = len(sentences) - _SENTENCES
        return "; ".join(sentences[:_SENTENCES]) + (f"; and {more} more" if more > 0 else "")
    if living := facts.living_on(node):
        return f"{', '.join(living)} still live"
    if assigned := facts.assigned_to(node):
        return f"{', '.join(assigned)} have their places there still"
    return "its supervisor is still there"
