"""What a task consists of, as bytes: its component's state in pieces (`copier`), and the engine's part (`engine`)."""

from elastic.worker.content.arrival import Arrival, Step, fill, install, pending
from elastic.worker.content.copier import Content, Copier

__all__ = ["Arrival", "Content", "Copier", "Step", "fill", "install", "pending"]
