"""Spark's python daemon, started faster: `spark.python.daemon.module` of the local sessions that are started here.

Spark puts its Python side into the path as a zip file, which is read and compiled again by each process. The same
version is installed here unpacked, so that one comes first; and what every python worker imports is imported once,
before the daemon forks. That must not start a thread (forking with threads is unsafe): a test looks.
"""

from __future__ import annotations

import sys

from elastic.hosts.archives import without_archives


def main() -> None:
    sys.path[:] = without_archives(sys.path)
    import pyspark.worker  # noqa: F401 - for those that are forked
    from pyspark.daemon import manager

    import elastic.hosts.spark_task  # noqa: F401 - likewise

    manager()


if __name__ == "__main__":
    main()
