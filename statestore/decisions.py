"""Who owns a key, and what a commit or a deletion makes of it: pure functions of what a back end has read.

A back end reads the record of a key, asks here what it becomes, and stores that, or nothing. Returning the very record that
was given means that there is nothing to store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from statestore.base import Head, Ticket
from statestore.errors import Conflict, Superseded


@dataclass(frozen=True, slots=True)
class Record:
    """What a back end keeps for a key beside the pieces.

    Attributes:
        epoch: The highest one that began, or with which it was deleted.
        writer: Who began it; "" when that write was ended for good.
        head: What is committed.
    """

    epoch: int
    writer: str
    head: Head | None

    @property
    def sequence(self) -> int:
        """Of the last commit of the owner's epoch."""
        return self.head.sequence if self.head is not None and self.head.epoch == self.epoch else 0


def begin(record: Record | None, ticket: Ticket) -> Record:
    """Raises: Superseded."""
    if record is None:
        return Record(ticket.epoch, ticket.writer, None)
    if ticket.epoch > record.epoch:
        return Record(ticket.epoch, ticket.writer, record.head)
    owned(record, ticket)
    return record


def owned(record: Record | None, ticket: Ticket) -> Record:
    """The record, when the ticket's writer owns it. Raises: Superseded."""
    if record is None:
        raise Superseded(f"{ticket.key}: epoch {ticket.epoch} was never begun, or was collected")
    if ticket.epoch != record.epoch:
        newer = f"epoch {record.epoch} owns it now"
        if ticket.epoch > record.epoch:
            newer = f"it was never begun (epoch {record.epoch} is the last)"
        raise Superseded(f"{ticket.key}: the writer of epoch {ticket.epoch} is refused: {newer}")
    if not record.writer:
        raise Superseded(f"{ticket.key}: epoch {ticket.epoch} was deleted or given up; it takes a newer one")
    if record.writer != ticket.writer:
        raise Superseded(f"{ticket.key}: epoch {ticket.epoch} was begun by another writer")
    return record


def commit(record: Record | None, ticket: Ticket, head: Head) -> Record:
    """Raises: Superseded, Conflict."""
    record = owned(record, ticket)
    last = record.sequence
    if record.head is not None and head.sequence == last and record.head.digest == head.digest:
        return record  # the answer to the first attempt was lost
    if head.sequence != last + 1:
        raise Conflict(
            f"{ticket.key}: commit {head.sequence} of epoch {ticket.epoch} comes after {last}"
            + (", with another content" if head.sequence == last else "")
        )
    return replace(record, head=head)


def abort(record: Record | None, ticket: Ticket) -> Record | None:
    """An owner gives up; anybody else has nothing to give up."""
    if record is None or record.epoch != ticket.epoch or record.writer != ticket.writer:
        return record
    return replace(record, writer="")


def delete(record: Record | None, key: str, epoch: int) -> Record:
    """Raises: Superseded."""
    if record is not None and record.epoch > epoch:
        raise Superseded(f"{key}: it is not for epoch {epoch} to delete: epoch {record.epoch} owns it now")
    if record is not None and record.epoch == epoch and not record.writer and record.head is None:
        return record
    return Record(epoch, "", None)


def collect(record: Record, key: str, keep: frozenset[tuple[str, int]], before: int) -> Record:
    """Without what an ended move has left: an unfinished write, an old version."""
    head, writer = record.head, record.writer
    if record.epoch <= before and (key, record.epoch) not in keep:
        writer = ""
    if head is not None and head.epoch <= before and (key, head.epoch) not in keep:
        head = None
    if (head, writer) == (record.head, record.writer):
        return record
    return Record(record.epoch, writer, head)
