"""The protocol of live moves: pure roles, one driver, ports. Nothing here reads a clock, a socket or chance.

    Nimbus      Notifier (one a move)  --record-->  coordination  --view-->  Participant (one a worker process)
    a worker    Participant = an Emitter per link out, a Receiver per link in, MoverOld and MoverNew per moving task

A role has one door, `handle(event) -> actions`; a `Driver` runs the actions in order against the ports. What a role may do in
which state is a table (`table.py`); who is too late is said by one gate (`gate.py`); what survives a crash is the record and the
marks beside it (`record.py`), and every role is rebuilt from those. The design is told in `docs/migration.md`.
"""
