"""move --abort: the end of moves before they have ended."""

from __future__ import annotations

from contextlib import suppress

from elastic.control.cli import output
from elastic.control.cli.losing import told
from elastic.control.cli.move_shown import tell
from elastic.control.cli.moving import Following, Request
from elastic.control.cli.narration import Waiting, note
from elastic.control.cli.ports import Client
from elastic.control.cli.settings import Settings
from elastic.errors import DeadlineExceeded, ElasticError


def end_moves(
    settings: Settings, name: str, epoch: int | None, why: str, wait: float, *, force: bool
) -> None:
    """Ask for the end of a topology's moves, and show what became of them.

    Args:
        epoch: The number of one; None: all that are under way.
        wait: Seconds until they have ended.
        force: Whether saved states are given up that nobody could restore.

    Raises:
        DeadlineExceeded: They have not by then, and go on ending.
    """
    shows = settings.command("moves", name)
    request = Request(f"the moves end all the same; {shows} shows them.", shows)
    with (
        Waiting(f"asking for the end of moves of {name}") as waiting,
        request.told(),
        settings.connect() as client,
        Following(settings, name, waiting) as following,
    ):
        request.asked()
        epochs = client.abort_move(name, epoch, why=why, force=force)
        request.taken()
        waiting.becomes(f"ending moves of {name}")
        ended = following.wait_until(
            client, lambda moves: set(epochs) <= {m.epoch for m in moves if m.state == "ended"}, wait
        )
        moves = [m for m in following.moves() if m.epoch in epochs]
        drained = _drained(client, name)
    tell(settings, {"topology": name, "epochs": list(epochs)}, moves)
    for sentence in told({(name, t.task): t.source for m in moves for t in m.tasks if t.phase == "lost"}):
        note(sentence)
    for node in drained:
        again = settings.command("nodes", "drain", node)
        note(
            f"{node} is still being drained: that was asked for and stands. It gets nothing new; what stays there is moved when"
            f" somebody asks again: {again}"
        )
    if not epochs:
        note(f"{name}: no task was on its way; what was planned is not begun.")
    elif wait > 0 and not ended:
        raise DeadlineExceeded(
            f"{name}: not everything has ended within {output.duration(wait)}.",
            remedy=f"It goes on ending; {settings.command('moves', name)} shows what it waits for.",
        )


def _drained(client: Client, name: str) -> list[str]:
    """The nodes that are being drained and have workers of the topology still: that was asked of them, and no abort takes it back."""
    with suppress(ElasticError):  # the abort is done all the same
        return [
            str(n.id)
            for n in client.nodes()
            if n.draining and any(w.rpartition("@")[0] == name for w in n.workers)
        ]
    return []
