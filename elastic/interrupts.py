"""What Ctrl-C leaves behind in the interpreter."""

from __future__ import annotations


def forget() -> None:
    """Have the process end with the exit code that it gives, although Ctrl-C has been caught.

    `python -m` ends by SIGINT, whatever the exit code, once KeyboardInterrupt has left code that `exec` or `eval` was given as
    text, and be it caught further up: so when Ctrl-C comes while a data class is made, as many are while modules are loaded. The
    next text forgets that (`run_eval_code_obj` in CPython's Python/pythonrun.c, 3.11 to 3.13).
    """
    exec("")
