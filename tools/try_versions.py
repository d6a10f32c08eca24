"""Try the wheels of dist/ with old and new versions of everything they need: `make versions`.

Each row is an environment under .envs. Its Python is found as `python3.N`, its packages have the versions that are
named, the others are the newest that pip finds. `python tools/try_versions.py 3.12` for the rows of one Python;
`--quick` trains a little instead of running every case of every operator. The last thing printed is the table of
README.md.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import try_wheels
from environments import ROOT, environment

NAMES = ("kernels/test_every_case", "kernels/test_large", "kernels/test_peak_memory", "kernels/test_errors",
         "hosts/test_hosts")  # fmt: skip
TESTS = [f"tests/{name}.py" for name in NAMES]
SHOWN = ("onnxruntime", "onnx", "onnx-ir", "numpy")


@dataclass(frozen=True)
class Row:
    """A Python and what is not the newest in it."""

    python: str
    pinned: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "-".join(["python", self.python, *(p.replace("==", "-") for p in self.pinned[:1])])


# The oldest of everything that pyproject.toml allows, the versions of onnxruntime around a change of its
# interface, the major versions of onnx-ir, and the newest of everything on every Python.
ROWS = (
    Row("3.10", ("onnxruntime==1.19.2", "onnx==1.21.0", "onnx-ir==0.1.15", "numpy==1.23.5", "safetensors==0.4.3")),
    Row("3.10"),
    Row("3.11", ("onnxruntime==1.20.1", "onnx==1.22.0", "onnx-ir==0.2.1", "numpy==1.26.4")),
    Row("3.11", ("onnxruntime==1.22.1",)),
    Row("3.11"),
    Row("3.12", ("onnxruntime==1.24.4", "onnx-ir==1.0.0")),
    Row("3.12", ("onnxruntime==1.27.0",)),
    Row("3.12"),
    Row("3.13"),
    Row("3.14"),
)  # fmt: skip


def versions_in(python: Path) -> list[str]:
    code = f"from importlib.metadata import version as v; print(*(v(n) for n in {SHOWN}))"
    return subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()


def try_row(row: Row, work: Path, quick: bool) -> tuple[list[str], str]:
    """The versions that were there, and the last line of the tests."""
    # pip chooses the wheel, and says where versions exclude each other
    extra = () if quick else ("pytest", "pytest-xdist", "hypothesis")
    python = environment(
        row.name,
        shutil.which(f"python{row.python}"),
        (f"--find-links={ROOT / 'dist'}", "onnxgrad", *row.pinned, *extra),
    )
    again = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-deps", "--force-reinstall",
             "--no-index", f"--find-links={ROOT / 'dist'}", "onnxgrad"]  # fmt: skip
    subprocess.run(again, check=True)
    # away from the sources, so that the installed wheel is what is tested
    command = [python, ROOT / "tools" / "smoke.py"]
    if not quick:
        command = [python, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    lines += [line for line in done.stdout.splitlines()[-1:] if done.returncode == 0]
    return versions_in(python), "\n    ".join(lines[-12:]) or "failed: " + done.stdout[
        -500:
    ] + done.stderr[-900:]


def table(found: list[tuple[Row, list[str], bool]]) -> str:
    """The rows that passed, as README.md shows them."""
    lines = ["| Python | " + " | ".join(SHOWN) + " |", "|---" * (len(SHOWN) + 1) + "|"]
    lines += [
        f"| {row.python} | " + " | ".join(versions) + " |"
        for row, versions, passed in found
        if passed
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", nargs="*", help="only the rows of this Python, such as 3.12")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        shutil.copytree(ROOT / "tests", work / "tests")
        shutil.copy(ROOT / "pyproject.toml", work)
        for row in ROWS:
            if options.python and row.python not in options.python:
                continue
            if not try_wheels.works(shutil.which(f"python{row.python}")):
                print(f"Python {row.python}: not found", flush=True)
                continue
            versions, line = try_row(row, work, options.quick)
            passed = "failed" not in line and "FAILED" not in line and "ERROR" not in line
            found.append((row, versions, passed))
            there = ", ".join(f"{name} {v}" for name, v in zip(SHOWN, versions, strict=True))
            print(f"{'✓' if passed else '✗'} Python {row.python}, {there}: {line}", flush=True)
    print("\n" + table(found))
    return int(not all(passed for _, _, passed in found))


if __name__ == "__main__":
    sys.exit(main())
