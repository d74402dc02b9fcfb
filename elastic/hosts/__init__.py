"""Hosts: where a worker node's supervisor process runs. `base` is the port; `process` and `spark` fill it."""
