"""ui: the cluster in a browser, and its metrics for Prometheus."""

from __future__ import annotations

import ipaddress
import threading
from contextlib import closing

import click

from elastic.control.cli import output
from elastic.control.cli.arguments import SECONDS
from elastic.control.cli.base import command
from elastic.control.cli.narration import Waiting, leaving, note
from elastic.control.cli.settings import Settings

PORT = 8088


class _Address(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """An IPv4 address."""

    name = "address"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return str(ipaddress.IPv4Address(value))
        except ValueError:
            self.fail(f"{value!r} is not an IPv4 address.", param, ctx)


@command(
    "ui",
    examples=[
        ("elastic ui", f"then look at http://127.0.0.1:{PORT}/"),
        ("elastic ui --port 0 -o json | jq -r .url", "on a free port, and say where"),
        (
            "elastic ui --address nimbus.internal:7000 --interval 5s",
            "of a cluster elsewhere, with a look each five seconds",
        ),
    ],
    see=("top", "describe", "moves"),
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Where it listens; 0 for a free one.",
)
@click.option(
    "--bind",
    type=_Address(),
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="The IPv4 address of this machine that it listens on. Whoever reaches it can read all.",
)
@click.option("--interval", type=SECONDS, default=1.0, show_default="1s", help="Time between two looks.")
def ui(settings: Settings, port: int, bind: str, interval: float) -> None:
    """Show the cluster in a browser, and its metrics to Prometheus.

    The page has the topologies as graphs, their rates, where each executor runs, moves with each step and pause, and events;
    it changes as the cluster does, and changes nothing. /metrics has all figures in Prometheus' text format.
    It outlives the cluster: when another one is started, it shows that. Ends by Ctrl-C; the cluster goes on.
    """
    from elastic.control.ui.serving import Server
    from elastic.control.ui.watching import Watcher
    from elastic.control.ui.web import LOOPBACK, Web

    hosts = (*LOOPBACK, bind) if ipaddress.IPv4Address(bind).is_loopback else None
    # What does not answer for so long is looked for anew: another cluster may have its name by now.
    watcher = Watcher(lambda: settings.connect(timeout=10.0), max(0.1, interval))
    with leaving("the page has ended; the cluster goes on."):
        with Waiting(f"asking {settings.target}"):
            watcher.open()
        # Closed before the server is, which would wait for browsers that look on; and also when it cannot listen.
        with closing(watcher), Server(Web(watcher, hosts), bind, port) as server, closing(watcher):
            _say(settings, *server.address)
            threading.Event().wait()


def _say(settings: Settings, host: str, port: int) -> None:
    url = f"http://{host}:{port}/"
    data = {"url": url, "metrics": f"{url}metrics"}
    output.show(settings, data, lambda: click.echo(url))
    note(f"For Prometheus: {data['metrics']}. Ctrl-C ends the page; the cluster goes on.")
