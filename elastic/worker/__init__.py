"""The data path in one process: spout executor -> collector -> router -> transport -> inbox -> bolt executor."""
