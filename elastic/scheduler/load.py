"""The load as schedulers take it. It lives in the model, because load monitors fill it and policies read it too."""

from __future__ import annotations

from elastic.model.loadview import ExecutorKey, LoadView, NodeLoad, SmoothedLoad, Traffic, regrouped

__all__ = ["ExecutorKey", "LoadView", "NodeLoad", "SmoothedLoad", "Traffic", "regrouped"]
