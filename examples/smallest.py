"""The smallest word count: elastic run examples/smallest.py counts the words of a.txt into counts.tsv."""

from elastic import CountBy, FlatMap, TextSink, TextSpout, TopologyBuilder


def topology() -> TopologyBuilder:
    b = TopologyBuilder("smallest")
    b.spout("lines", TextSpout("a.txt"))
    b.bolt("split", FlatMap(str.split, word=str)).shuffle("lines")
    b.bolt("count", CountBy("word"), tasks=8).fields("split", "word")
    b.bolt("out", TextSink("counts.tsv")).all_to_one("count")
    return b
