"""Schedulers: pure functions that say where executors run.

`base` is the port, and `round_robin` Storm's even scheduler, which answers whenever something happened. `decision` is the port of those
that decide by load once a period (`tstorm`, `otd`, `even`); `registry` has them by name. How the papers were read: docs/schedulers.md.
"""
