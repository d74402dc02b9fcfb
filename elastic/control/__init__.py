"""The gRPC service on Nimbus, its client, and the command line."""
