"""What Prometheus scrapes: all figures, by the names that the page on metrics lists."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

from cli_fake import TOTALS, detail
from prometheus_client.parser import text_string_to_metric_families
from ui_fake import Living

from elastic.control.ui.exposition import exposition, families
from elastic.control.ui.watching import Shown, take
from elastic.model.views import TopologyDetail

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
Samples = dict[tuple[str, frozenset[str]], float]
OF_IT = frozenset(("word-count",))


def shown(trouble: str = "", made: TopologyDetail | None = None) -> Shown:
    return Shown(take(Living(details={"word-count": made or detail(moved=TOTALS)})), trouble)


def scraped(what: Shown) -> Samples:
    """Values by name and values of labels, as Prometheus reads them."""
    return {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(exposition(what).decode())
        for sample in family.samples
    }


def test_figures_of_all_kinds_are_there() -> None:
    found = scraped(shown())
    expected = {
        ("elastic_up", ()): 1,
        ("elastic_node_up", ("node-1",)): 1,
        ("elastic_node_up", ("node-2",)): 0,
        ("elastic_topology_tasks", ("word-count",)): 6,
        ("elastic_topology_traffic_bytes", ("word-count",)): 12_300,
        ("elastic_topology_waits", ("word-count",)): 1,
        ("elastic_component_emitted_total", ("lines", "word-count")): 5000,
        ("elastic_component_held_tuples", ("count", "word-count")): 77,
        ("elastic_executor_state_bytes", ("count[2-3]", "node-1", "word-count", "word-count@node-1/0")): 3
        << 19,
        ("elastic_worker_up", ("node-2", "word-count", "word-count@node-2/0")): 0,
        ("elastic_moves_total", ("word-count",)): 1,
        ("elastic_moved_tasks_total", ("committed", "word-count")): 2,
        ("elastic_moved_bytes_total", ("word-count",)): 4096,
    }
    for (name, labels), value in expected.items():
        assert found[name, frozenset(labels)] == value, name


def test_pauses_are_a_histogram() -> None:
    found = scraped(shown())
    for bound, count in {"0.01": 0, "0.025": 2, "+Inf": 2}.items():
        assert found["elastic_move_pause_seconds_bucket", frozenset((bound, "word-count"))] == count
    assert found["elastic_move_pause_seconds_sum", OF_IT] == 0.0325
    assert found["elastic_move_pause_seconds_count", OF_IT] == 2


def test_before_the_first_move_the_histogram_is_empty() -> None:
    found = scraped(shown(made=detail()))
    assert found["elastic_move_gap_seconds_count", OF_IT] == 0


def test_metrics_of_users_keep_their_names_whatever_these_are() -> None:
    made = detail()
    odd = {'lines "read"\n': 3.0, "größe\\": math.nan}
    components = (replace(made.components[0], custom=odd), *made.components[1:])
    found = scraped(shown(made=replace(made, components=components)))
    own = {name: found["elastic_component_metric", frozenset(("word-count", "lines", name))] for name in odd}
    assert own['lines "read"\n'] == 3.0 and math.isnan(own["größe\\"])


def test_a_cluster_that_does_not_answer_has_no_old_figures() -> None:
    found = scraped(shown("no Nimbus answers"))
    assert {name for name, _ in found} == {"elastic_up", "elastic_look_timestamp_seconds"}
    assert found["elastic_up", frozenset()] == 0


def test_the_page_on_metrics_lists_each_by_its_name() -> None:
    section = PAGE.partition("\n## For Prometheus\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", section, re.MULTILINE)
    listed = {(name, kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    there = set()
    for family in families(shown()):
        suffix = "_total" if family.type == "counter" else ""
        labels = sorted({tuple(sample.labels) for sample in family.samples})
        of = (
            tuple(label for label in labels[0] if label != "le")
            if labels
            else ("topology", "component", "metric")
        )
        there.add((family.name + suffix, family.type, of))
    assert listed == there
