"""Word count, once for every contender, each a program of its own: `python -m benchmarks.words.rows --processes 2`.

A contender reads the text into memory, starts everything it needs, and only then takes the time: from the first line
that leaves its source until all counts are final. It prints one JSON object: words, seconds, a digest of the counts.
"""
