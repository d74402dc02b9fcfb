"""Nimbus: owns every topology's spec, state and assignment. `nimbus.Nimbus` is the object; the rest is its
parts."""
