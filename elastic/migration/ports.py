"""What the drivers need of the world. Every call returns at once; what comes of it is told to the driver as an event.

A call that cannot even be begun raises an error of the `elastic.errors` tree.
"""

from __future__ import annotations

from typing import Protocol

from elastic.migration import actions as ac


class Links(Protocol):
    """The data path between tasks. A link leads to one worker life at a time."""

    def open(self, action: ac.Open) -> None:
        """-> `Opened` there. Frames of the former way are sent and confirmed still."""

    def send(self, action: ac.Send) -> None:
        """-> `Arrived` there."""

    def fence(self, action: ac.SendFence) -> None:
        """-> `FenceArrived` there. Neither a full window nor a full queue holds it back."""

    def ask_room(self, action: ac.AskRoom) -> None:
        """-> `Room`, when the link takes an item."""

    def block(self, action: ac.Block) -> None: ...

    def unblock(self, action: ac.Unblock) -> None: ...

    def accept(self, action: ac.Accept) -> None:
        """Into the task's queue."""

    def drop(self, action: ac.Drop) -> None:
        """Gives its room back to the sender."""

    def not_here(self, action: ac.NotHere) -> None:
        """Keep the event until the target has links here (`TaskStarted`, `Tasks.begin`), then hand it in again.

        What is kept is bounded by the senders' windows, and by the life of those senders.
        """

    def tell_again(self, action: ac.TellAgain) -> None:
        """Tell the participant of the event when everything that is to be done now has been."""

    def tell_restored(self, action: ac.TellRestored) -> None:
        """-> `RestoreHeard` there, unless it gets lost. It waits for no room."""

    def rest(self, action: ac.Rest) -> None:
        """-> `Rested`, within a tenth of a second."""

    def confirm_output(self, action: ac.ConfirmOutput) -> None:
        """-> `Delivered`, when every frame that the task has sent was received, or its receiver's process is gone."""


class Tasks(Protocol):
    """The tasks in this process."""

    def note_pause(self, action: ac.NotePause) -> None:
        """For people."""

    def stop(self, action: ac.StopTask) -> None:
        """-> `Stopped`. A task that is blocked finishes its present tuple first: it is not stopped within one."""

    def go_on(self, action: ac.ContinueTask) -> None:
        """Undoes `stop`, whether or not it has come to that, and `Store.ask`: also when nobody has asked for `stop`.

        It may take effect later, as long as its state is being read; `Store.ask` of a next move answers after that.
        """

    def release(self, action: ac.ReleaseTask) -> None:
        """Drops the task without letting it do anything more."""

    def prepare(self, action: ac.PrepareTask) -> None:
        """-> `Prepared` or `NewFailed`."""

    def install(self, action: ac.Install) -> None:
        """-> `Installed` or `NewFailed`. Never before `prepare` has returned."""

    def begin(self, action: ac.BeginTask) -> None:
        """Lets it run, its input first. Its pause ends here."""

    def discard(self, action: ac.DiscardTask) -> None: ...


class Store(Protocol):
    """The state stores, as one worker uses them. Writes carry the epoch; a store that knows the move to be over refuses them."""

    def ask(self, action: ac.AskStore) -> None:
        """-> `StoreAsked`, or `OldFailed` with the sizes when it would not fit; not before what `Tasks.go_on` was asked for is done."""

    def save(self, action: ac.Save) -> None:
        """-> `SaveDone` when all nodes have confirmed all of it, else `OldFailed`. Takes the task's content when it is called."""

    def fetch_ahead(self, action: ac.FetchAhead) -> None:
        """-> `AheadFetched`, whatever came of it. What it has brought is kept until the task has been installed, or discarded."""

    def fetch(self, action: ac.Fetch) -> None:
        """-> `Fetched`; `NewFailed`, with `gone` only if every node has answered that it doesn't have it or is known to be gone.

        One that was only heard of: `NewFailed` also when what is there does not say of itself that it is the whole of the stopped task.
        """


class OwnMarks(Protocol):
    """This worker's marks in coordination."""

    def write(self, action: ac.WriteMarks) -> None:
        """-> `MarksRead`, whatever came of it; after a lost connection, when there is one again."""


class Timers(Protocol):
    def start(self, action: ac.StartTimer) -> None:
        """-> `TimerFired`."""


class Records(Protocol):
    """What Nimbus writes. Each write is one transaction with the guard of the election."""

    def commit(self, action: ac.Commit) -> None:
        """-> `RecordWritten` or `RecordConflict`."""

    def remove(self, action: ac.RemoveRecord) -> None:
        """-> `RecordRemoved` or `RecordConflict`."""


class Cleaning(Protocol):
    def clean(self, action: ac.CleanStores) -> None:
        """-> `StoresCleaned`. A node that is gone needs no cleaning; one that is out of reach collects when it comes back."""


class Voice(Protocol):
    def say(self, action: ac.Say) -> None: ...
