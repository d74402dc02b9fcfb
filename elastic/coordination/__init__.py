"""Coordination: small facts that everybody must agree on. `base` is the port; `memory` and `zookeeper` fill it."""
