"""What all gRPC services and clients share: values, errors, channels, servers. Imported only by gRPC adapters."""
