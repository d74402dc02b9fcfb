"""The data path in one process: spout executor -> collector -> router -> transport -> inbox -> bolt executor.

`worker.Worker` is the object; `moving` > `executing` > `content` > `emitting` > `tuples` are its parts, each of which knows those after it.
"""
