"""Elasticity: how many executors, workers and nodes there should be, decided from measurements. Pure: no clock, thread or chance.

`monitor` smooths what workers report; `kinds` says what limits a component; `thresholds` and `ds2` are policies; `manager` asks a policy
once a period and keeps it from oscillating; `infrastructure` asks for nodes and returns them.
`elastic.simulation` runs it all without tuples.
"""
