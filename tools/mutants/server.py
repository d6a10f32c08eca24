"""A process that has loaded what tests need, but not onnxgrad, and forks itself for every mutant."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
import time
from pathlib import Path

import onnxgrad_mutant as hook

# What takes long to import, and none of it imports onnxgrad.
LOADED = ("pytest", "_pytest.main", "_pytest.python", "hypothesis", "numpy", "onnx", "onnx.shape_inference",
          "onnx.version_converter", "onnx_ir", "onnx_ir.passes.common", "onnxruntime", "safetensors.numpy",
          "rich.console", "rich.table", "rich.progress", "yaml", "flatbuffers", "PIL.Image",
          "pyarrow", "pyarrow.parquet")  # fmt: skip
TOO_LONG = "too long"
LONGEST_WAIT = 1.0  # seconds between two looks at a child


def load(root: Path) -> None:
    """Import what every test will need."""
    for name in LOADED:
        try:
            importlib.import_module(name)
        except ImportError:  # an extra; tests that need it are skipped
            continue
    assert "onnxgrad" not in sys.modules
    sys.path[:0] = [str(root), str(root / "tests")]


def fails(module: str, source: Path, tests: list[str], seconds: float, output: Path) -> str | None:
    """Run the tests on a package whose `module` comes from the file `source`.

    Return the test that fails with what it said, "too long" or a signal; None when all pass. Tests that are gone since
    they were recorded are left out.
    """
    while tests:
        verdict = _fails(module, source, tests, seconds, output)
        gone = _gone(verdict, output)
        if not gone:
            return verdict
        tests = [t for t in tests if not any(g.endswith(t) for g in gone)]
    return None


def _gone(verdict: str | None, output: Path) -> list[str]:
    """The tests that pytest does not find any more."""
    if verdict != "pytest ended with 4":
        return []
    found = r"^ERROR: (?:not found|file or directory not found): (.*)$"
    return re.findall(found, output.read_text(errors="replace"), re.MULTILINE)


def _fails(module: str, source: Path, tests: list[str], seconds: float, output: Path) -> str | None:
    child = os.fork()
    if child == 0:
        _run(module, source, tests, output)
    spent, seen = 0.0, time.monotonic()
    while spent < seconds:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            _end_group(child)
            return _verdict(os.waitstatus_to_exitcode(status), output)
        time.sleep(0.02)
        now = time.monotonic()
        spent += min(now - seen, LONGEST_WAIT)  # not the time for which all of us were stopped
        seen = now
    _end_group(child)
    os.waitpid(child, 0)
    return TOO_LONG


def _end_group(leader: int) -> None:
    """End what a test may have started and left: the group that the child leads."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def _verdict(code: int, output: Path) -> str | None:
    if code == 0:
        return None
    if code < 0:
        return f"signal {-code}"
    text = output.read_text(errors="replace")
    failed = [line for line in text.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if code == 1 and failed:
        return f"{failed[0].split(' - ')[0].split(' ', 1)[1]} - {_reason(text)}"[:300]
    return f"pytest ended with {code}"


def _reason(text: str) -> str:
    """What the first failing test said, in the line that --tb=line prints below a heading."""
    found = re.search(r"^=+ (?:FAILURES|ERRORS) =+\n(?:.*/)?(.*)$", text, re.MULTILINE)
    return found[1] if found else ""


def _run(module: str, source: Path, tests: list[str], output: Path) -> None:
    os.setpgid(0, 0)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ["ONNXGRAD_MUTANT"] = f"{module}:{source}"
    os.environ["PYTHONPATH"] = str(Path(hook.__file__).parent)
    hook.change(module, source.read_text(encoding="utf-8"))
    import pytest

    try:
        options = [
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "--no-header",
            "--tb=line",
            "-rfE",
        ]
        code = pytest.main([*options, *tests])
    except BaseException:
        code = 3
    sys.stdout.flush()
    os._exit(int(code))
