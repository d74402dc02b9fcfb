"""`python -m elastic.control.cli` is the command `elastic`."""

from __future__ import annotations

from elastic.control.cli import main

if __name__ == "__main__":
    main()
