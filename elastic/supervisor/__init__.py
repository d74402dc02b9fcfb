"""The supervisor of a node: makes what coordination says about it true, with worker processes.

`decide` is the pure part; `driver` runs it; `observe` feeds it; `worker_process` holds the processes.
"""
