"""Topologies to run, read and copy: each file by itself, by `elastic run FILE` or `elastic submit FILE`."""
