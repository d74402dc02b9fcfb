"""Runs what roles want done, in their order. If one action of a role's answer fails, those behind it do not happen.

An event that comes while actions are being run (a port that answers at once) waits until they are done: a role never sees the middle of
its own answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from elastic.errors import ElasticError, ProtocolViolation, Unmovable
from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.migration.notifier import Notifier
from elastic.migration.participant import Participant
from elastic.migration.ports import Cleaning, Links, OwnMarks, Records, Store, Tasks, Timers, Voice
from elastic.migration.role import Actions

Run = Callable[[Any], None]


class Driver:
    """See the module. Not thread-safe: one thread feeds it, or its owner holds a lock.

    Args:
        answers: What the roles answer to an event: each answer is a sequence of its own.
        run: What to do for each kind of action.
        on_failed: Told the action that failed and its error; returns the event that follows, if one does.
        rest: What is left to be done after one event or several.
    """

    def __init__(
        self,
        answers: Callable[[Any], tuple[Actions, ...]],
        run: Mapping[type, Run],
        on_failed: Callable[[Any, ElasticError], Any],
        rest: Callable[[], tuple[Actions, ...]] = lambda: (),
    ) -> None:
        self._answers = answers
        self._rest = rest
        self._run = run
        self._on_failed = on_failed
        self._waiting: deque[Any] = deque()
        self._running = False

    def feed(self, event: Any, *, more: bool = False) -> None:
        """Have the roles answer to an event, and do what they want.

        Args:
            more: Other events follow at once, or `settle`: what is done once for all of them is left.

        Raises:
            ProtocolViolation: A role's state forbids the event.
        """
        self._waiting.append(event)
        self._work(more)

    def settle(self) -> None:
        """After events that were fed with `more`: do what was left."""
        self._work(False)

    def _work(self, more: bool) -> None:
        if self._running:
            return
        self._running = True
        try:
            while True:
                while self._waiting:
                    for answer in self._answers(self._waiting.popleft()):
                        self._carry_out(answer)
                if more or not (rest := self._rest()):
                    return
                for answer in rest:
                    self._carry_out(answer)
        finally:
            self._running = False

    def _carry_out(self, answer: Actions) -> None:
        for action in answer:
            try:
                self._run[action.__class__](action)
            except ProtocolViolation:
                raise
            except ElasticError as error:
                follows = self._on_failed(action, error)
                if follows is not None:
                    self._waiting.appendleft(follows)
                return


def failure(action: Any, error: ElasticError) -> Any:
    """The event that follows from an action of a participant that failed; None: its owner has to end the worker."""
    match action:
        case ac.AskStore() | ac.NotePause() | ac.StopTask() | ac.ConfirmOutput() | ac.Save():
            return ev.OldFailed(action.task, action.epoch, error.message, isinstance(error, Unmovable))
        case ac.PrepareTask() | ac.Fetch() | ac.Install():
            return ev.NewFailed(action.task, action.epoch, action.attempt, error.message)
        case ac.Rest():
            return ev.Rested(action.epoch, action.batch)
        case ac.FetchAhead():  # it is fetched in the pause, then
            return ev.AheadFetched(action.task, action.epoch, action.attempt)
    return None


def participant_driver(
    participant: Participant,
    *,
    links: Links,
    tasks: Tasks,
    store: Store,
    marks: OwnMarks,
    on_fatal: Callable[[Any, ElasticError], None],
) -> Driver:
    """The driver of one worker.

    Args:
        on_fatal: Told what failed that no rollback can mend; ends the worker.
    """

    def failed(action: Any, error: ElasticError) -> Any:
        follows = failure(action, error)
        if follows is None:
            on_fatal(action, error)
        return follows

    return Driver(
        participant.answers,
        {
            ac.Open: links.open,
            ac.Send: links.send,
            ac.SendFence: links.fence,
            ac.AskRoom: links.ask_room,
            ac.Block: links.block,
            ac.Unblock: links.unblock,
            ac.Accept: links.accept,
            ac.Drop: links.drop,
            ac.NotHere: links.not_here,
            ac.TellAgain: links.tell_again,
            ac.TellRestored: links.tell_restored,
            ac.Rest: links.rest,
            ac.ConfirmOutput: links.confirm_output,
            ac.NotePause: tasks.note_pause,
            ac.StopTask: tasks.stop,
            ac.ContinueTask: tasks.go_on,
            ac.ReleaseTask: tasks.release,
            ac.PrepareTask: tasks.prepare,
            ac.Install: tasks.install,
            ac.BeginTask: tasks.begin,
            ac.DiscardTask: tasks.discard,
            ac.AskStore: store.ask,
            ac.Save: store.save,
            ac.FetchAhead: store.fetch_ahead,
            ac.Fetch: store.fetch,
            ac.WriteMarks: marks.write,
        },
        failed,
        participant.writes,
    )


def notifier_driver(
    notifier: Notifier,
    *,
    records: Records,
    cleaning: Cleaning,
    timers: Timers,
    voice: Voice,
    on_fatal: Callable[[Any, ElasticError], None],
) -> Driver:
    """The driver of one move.

    Args:
        on_fatal: Told what could not even be begun (this Nimbus no longer leads, or is not connected): a later view goes on.
    """

    def failed(action: Any, error: ElasticError) -> Any:
        on_fatal(action, error)
        return None

    return Driver(
        lambda event: (notifier.handle(event),),
        {
            ac.Commit: records.commit,
            ac.RemoveRecord: records.remove,
            ac.CleanStores: cleaning.clean,
            ac.StartTimer: timers.start,
            ac.Say: voice.say,
        },
        failed,
    )
