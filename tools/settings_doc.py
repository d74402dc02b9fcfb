"""Make docs/settings.md from the table in elastic/api/settings.py.

python tools/settings_doc.py            write it
python tools/settings_doc.py --check    end with 1 when it is not what the table gives
"""

from __future__ import annotations

import sys
from pathlib import Path

from elastic.api.settings import SETTINGS, Setting

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

_HEAD = """\
# Settings

Made from `elastic/api/settings.py` by `python tools/settings_doc.py`; a test compares the two.

A setting is given to the `TopologyBuilder`, then it holds for all components, or to one `spout` or `bolt`, then it holds for that
one and wins over the topology's. A name that is not known, a wrong type or a value out of range raises `ConfigError` in `build()`;
where nothing else is said, a time or rate is at most 1,000,000,000. Settings of your own have a dot in their name; they may be finite
numbers, strings, booleans, None, and lists and dictionaries of these, with strings as keys, and components read them in
`self.context.config`.

```python
from elastic import TextSpout, TopologyBuilder

b = TopologyBuilder("settings", max_errors=10, **{"shop.currency": "EUR"})
b.spout("lines", TextSpout("a.txt"), rate=1000, max_errors=0)
topology = b.build()
print(topology.spec.config)
print(topology.spec.components[0].config)
```

```text output
{'max_errors': 10, 'shop.currency': 'EUR'}
{'rate': 1000, 'max_errors': 0}
```
"""

_COMPONENT = """
## Of a topology or of a component
"""

_WHOLE = """
## Of a topology only

These concern its workers as a whole. To give one to a component is an error.
"""


def page() -> str:
    """The page's text."""
    own = {n: s for n, s in SETTINGS.items() if not s.whole}
    whole = {n: s for n, s in SETTINGS.items() if s.whole}
    return "".join([_HEAD, _COMPONENT, *_table(own), _WHOLE, *_table(whole)])


def _table(settings: dict[str, Setting]) -> list[str]:
    lines = [
        "\n| setting | type | default | at least | at most | what it does |\n",
        "|---|---|---|---|---|---|\n",
    ]
    for name, s in sorted(settings.items()):
        kinds = " or ".join(k.__name__ for k in s.kinds)
        least, most = ("" if bound is None else f"{bound:g}" for bound in (s.minimum, s.maximum))
        default = "none" if s.default is None else f"{s.default:g}"
        lines.append(f"| `{name}` | {kinds} | {default} | {least} | {most} | {s.help} |\n")
    return lines


def main(arguments: list[str]) -> int:
    """Write or check the page; returns the exit code."""
    if arguments == ["--check"]:
        if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page():
            return 0
        print(f"{PAGE} is out of date; run: python tools/settings_doc.py", file=sys.stderr)
        return 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
