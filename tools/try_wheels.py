"""Install the wheels of dist/ in clean environments and train with them, without a compiler: part of `make wheels`.

Each Python from 3.10 to 3.14 that is found as `python3.N` gets an environment, pip chooses the wheel that fits, and
`tools/smoke.py` and `onnxgrad demo` run there. The PATH holds the environment and nothing else.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
MINORS = (10, 11, 12, 13, 14)


def works(python: str | None) -> bool:
    return (
        bool(python) and not subprocess.run([python, "--version"], capture_output=True).returncode
    )


def processor_seconds() -> float:
    """Of all processes that were started and have ended: what a busy machine does not disturb."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def try_python(python: str) -> str:
    """One line: seconds of the installation and of the demo, and what is installed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([python, "-m", "venv", folder / "env"], check=True)
        tools = folder / "env" / "bin"
        install = [tools / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check",
                   "--only-binary", ":all:", "--find-links", DIST, "onnxgrad"]  # fmt: skip
        commands = [
            install,
            [tools / "python", ROOT / "tools" / "smoke.py"],
            [tools / "onnxgrad", "demo"],
        ]
        said, seconds = [], []
        for command in commands:
            started, used = time.perf_counter(), processor_seconds()
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True,
                                  env={"PATH": str(tools), "HOME": str(Path.home())})  # fmt: skip
            seconds.append(
                f"{time.perf_counter() - started:.0f} s ({processor_seconds() - used:.0f} s of processor time)"
            )
            if done.returncode:
                return (
                    f"✗ {' '.join(map(str, command))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
                )
            said.append(done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "")
    return f"✓ installed in {seconds[0]}; {said[1]}; demo in {seconds[2]}: {said[2]}"


def main() -> int:
    failed = False
    for minor in MINORS:
        python = shutil.which(f"python3.{minor}")
        line = try_python(python) if works(python) else "not found"
        failed = failed or line.startswith("✗")
        print(f"Python 3.{minor}: {line}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
