"""What a task consists of, as bytes: its component's state in pieces (`copier`), and the engine's part (`engine`)."""

from elastic.worker.content.copier import Content, Copier, fill, install, pending

__all__ = ["Content", "Copier", "fill", "install", "pending"]
