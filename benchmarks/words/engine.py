"""elastic itself: one process by `LocalCluster`, two workers by a cluster on this machine."""

from __future__ import annotations

import tempfile

from benchmarks.words.contender import not_here
from benchmarks.words.text import arguments, say
from benchmarks.words.topologies import build, collected


def main() -> None:
    """The contender as a program."""
    parser = arguments(__doc__)
    parser.add_argument("--batches", action="store_true", help="on the batch API")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        made = build(options.batches, options.input, options.copies, options.processes, directory)
        if options.processes == 1:
            from elastic.local import run

            run(made, timeout=240)
        else:
            not_here("two workers need a cluster")
        say(*collected(directory))


if __name__ == "__main__":
    main()
