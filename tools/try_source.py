"""Build and install the source archive of dist/ without a network, and train with it: part of `make wheels`.

The environment has what pyproject.toml asks for, for building and for running. Then pip works without an index, and
where the system allows it (Linux, `unshare`) in a namespace that has no network at all.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time

from environments import ROOT, environment

DIST = ROOT / "dist"


def requirements() -> list[str]:
    """What building and running need: the two lists of pyproject.toml, which Python 3.10 cannot read by itself."""
    text = (ROOT / "pyproject.toml").read_text()
    found = []
    for name in ("requires", "dependencies"):
        block = re.search(rf"^{name} = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)[1]
        found += re.findall(r'"([^"]+)"', block)
    return [*found, "cmake", "ninja"]


def without_network() -> list[str]:
    """The words that take the network from a command; none where the system does not let us."""
    words = ["unshare", "--map-root-user", "--net"]
    if (
        shutil.which("unshare")
        and not subprocess.run([*words, "true"], capture_output=True).returncode
    ):
        return words
    return []


def main() -> int:
    archive = next(DIST.glob("*.tar.gz"))
    python = environment("source", sys.executable, requirements())
    isolated = without_network()
    variables = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index",
               "--no-build-isolation", "--force-reinstall", "--no-deps",
               "-C", "cmake.define.ONNXGRAD_LEVELS=native", archive]  # fmt: skip
    started = time.perf_counter()
    for command in (install, [python, ROOT / "tools" / "smoke.py"]):
        done = subprocess.run(
            [*isolated, *map(str, command)], cwd=DIST, env=variables, capture_output=True, text=True
        )
        if done.returncode:
            print(f"✗ {archive.name} offline\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
            return 1
    how = "in a namespace without a network" if isolated else "without an index"
    seconds = time.perf_counter() - started
    print(f"✓ {archive.name} built {how} in {seconds:.0f} s: {done.stdout.strip()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
