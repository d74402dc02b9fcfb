"""Components in other languages, over Storm's multilang protocol: a process for each task, with which it exchanges JSON by pipes.

    handshake   its settings and place, and a directory for its pid -> {"pid": n}
    bolts       a tuple -> emits, logs, and at last an `ack` or `fail` of it
    spouts      "next", "ack", "activate", "deactivate" -> emits, logs, and at last a `sync`

Each message is JSON, and then a line `end`. An executor calls and waits, as it does for a component in Python: between two calls nothing is
under way in the process, so moves, marks and the order of streams are what they are for any other.
"""
