"""Chaos: the real cluster, with random moves and kills, under a checker that knows nothing of it.

python -m chaos --kills 200            the run: see docs/chaos.md
python -m chaos.check FILE...          the checker: reads what the sinks wrote, and nothing else
"""
