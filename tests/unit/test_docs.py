"""What the documentation shows is so: examples run, and print what is said; commands, links and tables are right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs_runner import Runner, Wrong, blocks

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    monkeypatch.chdir(tmp_path)  # examples go elsewhere; afterwards the test is back where it was
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Runner(tmp_path)
    os.chdir(ROOT)


@pytest.mark.parametrize("page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in PAGES])
def test_examples_run_and_print_what_is_said(page: Path, runner: Runner) -> None:
    text = page.read_text(encoding="utf-8")
    shown = [b for b in blocks(page.name, text) if b.language == "python"]
    assert runner.run(page.name, text) >= len(shown)


WORKING = """\
```python file=hello.py
from elastic import Fields, Spout, TopologyBuilder
class Hello(Spout):
    outputs = Fields(word=str)
    def tuples(self):
        yield "hello"
def topology():
    b = TopologyBuilder("hello")
    b.spout("hello", Hello())
    return b.build()
print(topology().name)
```

```text output
hello
```

```sh
elastic run hello.py   # in this process
elastic up --nodes 2 && elastic submit hello.py
elastic rebalance hello -e hello=1
```

```python raises=TopologyError
TopologyBuilder("empty").build()
```
"""


def test_a_page_that_is_right_passes(runner: Runner) -> None:
    assert runner.run("page.md", WORKING) == 4


@pytest.mark.parametrize(
    ("right", "wrong", "found"),
    [
        ("hello\n```\n\n```sh", "goodbye\n```\n\n```sh", "page.md:15: printed was"),
        ('yield "hello"', "yield nothing", "page.md:19: ended with 10"),
        ("run hello.py", "run goodbye.py", "page.md:19: ended with 3"),
        ("--nodes 2", "--knots 2", "page.md:20: .*No such option"),
        ("elastic rebalance", "elastic balance", "page.md:21: "),
        ("-e hello=1", "-e", "page.md:21: "),
        ('TopologyBuilder("empty")', "topology()", "page.md:25: "),
        ("print(topology().name)", "print(topology().nam)", "page.md:2: AttributeError"),
        ("def tuples(self):", "def tuples(self)", "page.md:2: "),
        ("TopologyBuilder(\"empty\").build()\n```", "pass", "does not end"),
    ],
)  # fmt: skip
def test_a_page_that_is_wrong_is_found(right: str, wrong: str, found: str, runner: Runner) -> None:
    assert WORKING.count(right) == 1
    with pytest.raises(Wrong) as caught:
        runner.run("page.md", WORKING.replace(right, wrong))
    assert re.search(found, str(caught.value))


def test_a_heading_begins_a_new_program(runner: Runner) -> None:
    runner.run("page.md", "```python\nx = 1\n```\n### Still\n```python\nassert x\n```\n")
    with pytest.raises(Wrong, match="NameError"):
        runner.run("other.md", "```python\nx = 1\n```\n## New\n```python\nassert x\n```\n")


# ---------------------------------------------------------------------- links, README, settings


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in target:
                continue
            place, _, anchor = target.partition("#")
            file = (page.parent / place).resolve() if place else page
            assert file.exists(), f"{page.name} links to {target}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
                assert anchor in {_anchor(h) for h in headings}, f"{page.name} links to {target}"


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_every_page_is_in_the_index() -> None:
    for directory in (ROOT / "docs", ROOT / "docs" / "decisions"):
        index = (directory / "README.md").read_text(encoding="utf-8")
        for page in directory.glob("*.md"):
            assert page.name == "README.md" or f"]({page.name})" in index, page.name


def test_every_decision_is_in_the_index() -> None:
    directory = ROOT / "docs" / "decisions"
    index = (directory / "README.md").read_text(encoding="utf-8")
    for page in directory.glob("[!R]*.md"):
        for heading in re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            assert f"- [{heading}]({page.name}#{_anchor(heading)})" in index, f"{page.name}: {heading}"


def test_the_readme_names_two_commands_of_make() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^make ([a-z]+)", text, re.MULTILINE) == ["demo", "test"]
    assert sorted(re.findall(r"\bmake ([a-z]+)", text)) == ["demo", "setup", "test"]


@pytest.mark.parametrize("page", ["README.md", "docs/guide.md", "docs/cli.md"])
def test_who_begins_is_told_how_to_have_the_command(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert all(part in text for part in ("`make setup`", ". .venv/bin/activate", "`.venv/bin/elastic`"))


def test_settings_are_those_of_the_table() -> None:
    command = [sys.executable, str(ROOT / "tools" / "settings_doc.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_every_name_of_the_package_is_loaded() -> None:
    import elastic

    for name in elastic.__all__:
        assert getattr(elastic, name).__name__ == name
    used = {
        n
        for p in PAGES
        for m in re.findall(r"^from elastic import (.*)$", p.read_text(), re.MULTILINE)
        for n in m.split(", ")
    }
    assert used <= set(elastic.__all__)
