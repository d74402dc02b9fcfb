"""Schedulers: pure functions that say where executors run. `base` is the port; `round_robin` is Storm's even
scheduler."""
