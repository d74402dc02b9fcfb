"""The node-local store (N-Storm 2019, section III): one writer, the supervisor; many readers, its workers."""
