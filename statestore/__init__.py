"""The state store: one service per node, holding what tasks hand over. Knows nothing of elastic.

`base` is the port, `writing` how a state gets in piece by piece, `memory`, `embedded` and `hazelcast` are back ends, `client`
and `server` put any of them behind gRPC. Bytes go in and come out; what they mean is the caller's business.
"""
