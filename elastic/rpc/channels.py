"""Channels with the options that all of elastic's clients share."""

from __future__ import annotations

import grpc

from elastic.rpc.errors import METADATA_LIMIT

CHUNK = 1 << 20
"""Bytes of a piece of a bundle."""

MAX_MESSAGE = 16 << 20

SHARED = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.max_metadata_size", METADATA_LIMIT),
    ("grpc.absolute_max_metadata_size", 2 * METADATA_LIMIT),
)
_CLIENT = (
    *SHARED,
    # A proxy out of the environment is for the web, not for the nodes of a cluster.
    ("grpc.enable_http_proxy", 0),
    # gRPC's own pauses between attempts to connect grow to two minutes, too long for a Nimbus that was started again.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.use_local_subchannel_pool", 1),
    # A followed stream to a machine that vanished must end; only pinged while a call is under way.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)


def open_channel(address: str) -> grpc.Channel:
    """A channel to `host:port`; nothing is connected before the first call. The caller closes it."""
    return grpc.insecure_channel(address, options=_CLIENT)
