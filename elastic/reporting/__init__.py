"""Reporting: what nodes tell Nimbus, and fetch from it. `base` is the port; `memory` and `grpc_client` fill it."""
