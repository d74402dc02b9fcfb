"""A topology task by task: rates between two reports of the same life of a worker."""

from __future__ import annotations

from dataclasses import replace

from cli_fake import W0, W1, detail

from elastic.control.present import Plain
from elastic.control.tasks import Reports
from elastic.model.load import TaskLoad, WorkerReport


def report(time: float, executed: int, incarnation: str = "a", worker: str = str(W0)) -> WorkerReport:
    tasks = (
        TaskLoad(2, "count", "count[2-3]", executed, 2 * executed, 1, 5, state=77),
        TaskLoad(3, "count", "count[2-3]", finished=True),
    )
    return WorkerReport("word-count", worker, incarnation, time, 7, tasks=tasks)


def after(*looks: WorkerReport | None) -> dict[int, Plain]:
    reports = Reports()
    for look in looks:
        shown = detail(reports=() if look is None else (look,))
        reports = reports.then(shown)
    return {row["task"]: row for row in reports.rows(shown)}


def test_each_task_has_a_row_also_where_nobody_has_reported() -> None:
    rows = after(None)
    assert list(rows) == [1, 2, 3, 4, 5]
    assert rows[4]["worker"] == str(W1) and rows[4]["executed"] == 0


def test_a_first_report_has_counters_and_no_rates() -> None:
    row = after(report(10.0, 100))[2]
    assert (row["executed"], row["emitted"], row["failed"], row["queued"], row["state"]) == (
        100,
        200,
        1,
        5,
        77,
    )
    assert row["executed_rate"] == row["emitted_rate"] == 0


def test_rates_are_between_the_two_newest_reports() -> None:
    rows = after(report(8.0, 0), report(10.0, 100), report(12.0, 150))
    assert (rows[2]["executed_rate"], rows[2]["emitted_rate"]) == (25.0, 50.0)
    assert rows[3]["finished"] and rows[3]["executed_rate"] == 0


def test_a_look_that_finds_the_same_report_keeps_the_rates() -> None:
    assert after(report(8.0, 0), report(10.0, 100), report(10.0, 100))[2]["executed_rate"] == 50.0


def test_a_new_life_of_the_worker_begins_without_rates() -> None:
    assert after(report(8.0, 900), report(10.0, 100, incarnation="b"))[2]["executed_rate"] == 0
    assert after(report(8.0, 900), report(10.0, 1000), None)[2]["executed_rate"] == 0, "it has ended"


def test_a_task_that_has_come_back_and_begun_again_has_no_negative_rate() -> None:
    assert after(report(8.0, 900), report(10.0, 100))[2]["executed_rate"] == 0


def test_a_task_that_has_moved_goes_on_at_its_rate() -> None:
    there = report(10.5, 150, worker=str(W1))
    looks = [
        detail(reports=(report(9.0, 0),)),
        detail(reports=(report(10.0, 100),)),
        detail(reports=(report(10.0, 100), there)),
        detail(reports=(replace(report(11.0, 0), tasks=()), there)),
    ]
    reports = Reports()
    found = []
    for look in looks:
        reports = reports.then(look)
        found.append({row["task"]: row for row in reports.rows(look)}[2]["executed_rate"])
    assert found == [0, 100.0, 100.0, 100.0]


def test_what_waits_for_a_slot_has_no_report_of_somebody_else() -> None:
    shown = detail(reports=(report(1.0, 5),))
    waiting = tuple(replace(e, worker="", node="") for e in shown.executors)
    rows = Reports().then(shown).rows(replace(shown, executors=waiting))
    assert all(row["worker"] == "" and row["executed"] == 0 for row in rows)
