"""The node-local store (seed 000, section III): one writer, the supervisor; many readers, its workers."""
