"""The demonstration: `python -m examples.demo`, or `make demo`."""
