"""Transport: frames between worker processes. `base` is the port; `memory` and `sockets` fill it."""
