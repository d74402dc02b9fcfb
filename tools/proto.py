"""Makes the gRPC stubs from proto/, or checks that those in the repository are what proto/ gives.

    python tools/proto.py            write them
    python tools/proto.py --check    exit with 1 and a list when something differs

`proto/elastic/control/v1/control.proto` becomes `elastic/control/v1/control_pb2.py` and its neighbours, so the
generated imports work unedited. The generator runs in an environment of its own (`tools/stubs.lock`), at the oldest
release that pyproject.toml allows: code made by an older one works with newer runtimes, not the other way round.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
STUBS = ROOT / ".venv" / "stubs"
SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")


def generator() -> Path:
    """The interpreter of the environment that has the generator; made when it isn't there."""
    setup: list[str | Path] = [
        sys.executable,
        ROOT / "tools" / "setup.py",
        "--venv",
        STUBS,
        "--lock",
        ROOT / "tools" / "stubs.lock",
    ]
    if subprocess.run(setup, stdin=subprocess.DEVNULL).returncode != 0:
        sys.exit("The environment that generates the stubs could not be made.")
    return STUBS / "bin" / "python"


def generate(into: Path) -> None:
    """Write the stubs of all of proto/ below `into`."""
    files = sorted(PROTO.rglob("*.proto"))
    services = [f for f in files if any(line.startswith("service ") for line in f.read_text().splitlines())]
    python = generator()
    protoc = [str(python), "-m", "grpc_tools.protoc", f"-I{PROTO}"]
    # protoc looks for its plug-ins on the PATH.
    env = {**os.environ, "PATH": os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])}
    for out, sources in (
        ("python", files),
        ("mypy", files),
        ("grpc_python", services),
        ("mypy_grpc", services),
    ):
        option = f"--{out}_out={'quiet:' if out.startswith('mypy') else ''}{into}"
        if sources and subprocess.run([*protoc, option, *map(str, sources)], env=env).returncode != 0:
            sys.exit("The proto files could not be compiled.")


def stubs(below: Path) -> set[Path]:
    """The generated files below a directory, relative to it; only in packages that proto/ has."""
    packages = {f.parent.relative_to(PROTO) for f in PROTO.rglob("*.proto")}
    return {
        f.relative_to(below)
        for package in packages
        for f in (below / package).glob("*")
        if f.name.endswith(SUFFIXES)
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the gRPC stubs from proto/.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when something differs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        fresh = Path(directory)
        generate(fresh)
        made, kept = stubs(fresh), stubs(ROOT)
        stale = sorted(kept - made)
        changed = sorted(
            f for f in made if f not in kept or not filecmp.cmp(fresh / f, ROOT / f, shallow=False)
        )
        if options.check:
            for f in (*changed, *stale):
                print(f"{f} is not what proto/ gives: run python tools/proto.py", file=sys.stderr)
            return 1 if changed or stale else 0
        for f in stale:
            (ROOT / f).unlink()
        for f in changed:
            (ROOT / f).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(fresh / f, ROOT / f)
            init = (ROOT / f).parent / "__init__.py"
            if not init.exists():
                init.write_text('"""Generated from proto/ by tools/proto.py."""\n')
    return 0


if __name__ == "__main__":
    sys.exit(main())
