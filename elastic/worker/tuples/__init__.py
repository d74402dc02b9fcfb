"""Tuples as they stand in queues and travel: batches, frames, record batches, and the hash of their keys."""
