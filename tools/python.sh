#!/bin/sh
# Print the command of a Python 3.11 to 3.13 that can make virtual environments, or say clearly that there is none.
# PYTHON=... chooses one. Candidates are tried, not trusted: a version manager's shim exists and may still fail.
seen=""
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
    command -v "$candidate" >/dev/null 2>&1 || continue
    version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' </dev/null 2>/dev/null) || continue
    case "$version" in
        3.11 | 3.12 | 3.13) ;;
        *) seen="$seen
  $candidate is Python $version" && continue ;;
    esac
    if "$candidate" -c 'import venv, ensurepip' </dev/null >/dev/null 2>&1; then
        echo "$candidate"
        exit 0
    fi
    seen="$seen
  $candidate is Python $version, but lacks the modules venv and ensurepip (Debian: apt-get install python3-venv)"
done
{
    echo "elastic needs Python 3.11, 3.12 or 3.13 with its venv module, and found none on the PATH."
    if [ -n "$seen" ]; then echo "Found:$seen"; fi
    echo "Install one, or name it: make PYTHON=/path/to/python3.12 ..."
} >&2
exit 1
