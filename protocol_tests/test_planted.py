"""The suite can fail: each planted fault is found."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from elastic.errors import ProtocolViolation
from protocol_tests import ends, pauses, restarts, returns, scenarios, situations, user_topology
from protocol_tests.planted import MORE, NAMED, planted
from protocol_tests.runner import run_many

ENOUGH = 400
"""Runs in which each of them is found with a wide margin; those that take longer have a scenario of their own."""
BROKEN = (AssertionError, ProtocolViolation)
"""What a promise that is not kept raises. Anything else says that the fault was planted wrongly: what it patches has changed since, say."""
SCENARIOS = {
    "fence without position": scenarios.fence_overtakes,
    "who has it goes on before that was taken down": returns.is_not_heard_of_by_who_has_it,
    "who has it lets go of it when it reads of the outcome first": returns.reads_of_the_outcome_first,
    "who could not restore it is not refused": returns.goes_on_while_another_restores,
    "a state is given up that somebody may still restore": returns.is_given_up,
    "a conflict keeps the old record": scenarios.commit_of_unknown_fate,
    "the new place forgets the fence": scenarios.emitter_restored_where_less_is_known,
    "looks once for what is not known yet": scenarios.emitter_restored_before_what_is_gone_is_known,
    "fences are remembered where a task has come to": scenarios.restored_together_with_who_emits_to_it,
    "restored in a move before is restored in this one": scenarios.emitter_restored_where_the_move_before_is_read,
    "links end where it was put in": scenarios.given_back_after_it_was_put_in,
    "what is for the next life is for this one": scenarios.told_of_the_outcome_by_who_emits,
    "saves to one node": restarts.node_dies_after_saved,
    "links go on after they were exported": scenarios.pause_comes_while_saving,
    "release before the receivers have drained": restarts.receivers_have_not_got_it,
    "no opening after a pause": scenarios.restored_where_it_came_from,
    "marks without condition": scenarios.given_up_while_restoring,
    "who comes back without its state is who had left": scenarios.started_anew_where_it_came_from,
    "a rollback refuses saved alone": scenarios.rolled_back_while_restoring,
    "restored without condition": scenarios.rolled_back_while_restoring,
    "a next move begins before the task has gone on": scenarios.moved_again_while_it_is_read,
    "whose old place is gone sends no fence": scenarios.emitter_may_be_restored_by_word,
    "only the last attempt's stores are emptied": scenarios.saved_where_it_is_not_restored,
    "nodes don't hear that a move has ended": scenarios.store_not_reached_at_the_end,
    "a state that is gone is fetched again and again": scenarios.both_nodes_die_after_saved,
    "a task begins that was not written down": restarts.rolled_back_while_it_begins_anew,
    "pauses whole streams": pauses.only_the_links_to_the_moving_task_hold,
    "a task stops before its emitters hold": pauses.runs_until_all_hold,
    "a task runs on that emits to one that stands still": pauses.runs_until_all_hold,
    "a task runs on whose target is paused since": pauses.stops_when_its_target_is_paused,
    "emitters wait for the outcome": pauses.two_writes_and_two_notifications,
    "one more write in the pause": pauses.two_writes_and_two_notifications,
    "who is late keeps back the others' word": scenarios.one_is_late,
    "each says by itself that it has come from the stores": scenarios.fetched_ahead_is_said_together,
    "a barrier for the whole batch": pauses.resumes_at_once,
    "the next turn comes without a rest": pauses.takes_turns_and_rests,
    "who begins anew sends while the stream rests": pauses.holds_from_the_start,
    "who was gone is gone, though it was only heard whose turn it is": pauses.waits_for_who_may_have_begun_anew,
    "whose turn is next does not hear of it": pauses.hears_of_its_turn,
    "a word that the last one is restored brings nobody a turn": pauses.takes_turns_and_rests,
    "restored is written for all together": partial(pauses.resumes_at_once, situations.B),
    "links go on while what has left is confirmed": ends.stopped_while_it_has_something_to_send,
    "who stays asks for no room again": ends.stopped_while_it_has_something_to_send,
    "sends to who is gone": ends.who_is_gone_is_held_for,
    "no opening before a fence": ends.paused_where_its_emitter_has_come_to,
    "an old side takes words of a move before": ends.late_words_of_a_move_before,
    "a new side takes words of a move before": ends.late_words_of_a_move_before,
    "what was refused is written": ends.refused_before_it_was_written,
    "a task runs on whose target is gone": ends.stops_when_its_target_is_gone,
    "who could not is not asked again": ends.tries_again_where_it_could_not,
}
ALSO = {
    "no fence": user_topology.fences_on_links_that_users_declare,
    "fences are remembered where a task has come to": scenarios.late_fence_of_a_move_that_is_over,
}
"""Scenarios that are there for something else, and that need what these faults take away."""


@pytest.mark.parametrize("name", [n for n in (*NAMED, *MORE) if n not in SCENARIOS])
def test_random_runs_find(name: str) -> None:
    with planted(name):
        report = run_many(0, 1, runs=ENOUGH, stop_at_failure=True)
    assert report.failures, f"{name}: not found in {report.runs} runs with {report.moves} moves"
    assert isinstance(report.errors[0], BROKEN), report.failures


@pytest.mark.parametrize(("name", "scenario"), [*SCENARIOS.items(), *ALSO.items()])
def test_a_scenario_finds(name: str, scenario: Callable[[], None]) -> None:
    scenario()
    with planted(name), pytest.raises(BROKEN):
        scenario()
