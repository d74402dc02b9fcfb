"""Nimbus: owns every topology's spec, state and assignment. `nimbus.Nimbus` is the object, `reign.Reign` what it is while it leads.

`requests` > `balancing` > `moves` > `deciding` > `observing` are its parts, each of which knows those after it.
"""
