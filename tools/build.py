"""Build onnxgrad and install it in place, showing how far it is: `make demo` and `make test` begin with this.

The Python files are used as they are. The native libraries are compiled for the instruction set of this machine
(ONNXGRAD_LEVELS=native; =all for every one of them).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 130  # of one core, to compile for one instruction set without a compiler cache


def announcement(levels: str) -> str:
    """How long it will take, roughly."""
    sets = 3 if levels == "all" else max(1, len(levels.split(";")))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    minutes = sets * SECONDS / (cores or 1) / 60
    length = f"about {minutes:.0f} min" if minutes >= 1.5 else "about a minute"
    cache = shutil.which("ccache") or shutil.which("sccache")
    again = f"; less where {Path(cache).name} has seen it" if cache else ""
    what = "every instruction set" if levels == "all" else "this processor"
    return f"building onnxgrad for {what}: {length} on {cores} cores{again}"


def pip_command(levels: str, werror: str) -> list[str]:
    return [sys.executable, "-m", "pip", "install", "-v", "--disable-pip-version-check", "--no-build-isolation",
            "-C", f"cmake.define.ONNXGRAD_WERROR={werror}", "-C", f"cmake.define.ONNXGRAD_LEVELS={levels}",
            "-e", str(ROOT)]  # fmt: skip


def follow(command: list[str]) -> tuple[int, list[str]]:
    """Run the command; on a terminal, ninja's lines [12/70] stand on one line that is written over."""
    tools = str(Path(sys.executable).parent)
    path = os.pathsep.join([tools, os.environ.get("PATH", "")])
    lines, on_terminal = [], sys.stdout.isatty()
    width = shutil.get_terminal_size().columns - 1
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "PATH": path},
    )
    for line in process.stdout:
        lines.append(line.rstrip())
        step = re.search(r"(\[\d+/\d+\]) .*?([\w.]+?)(?:\.o)?\s*$", line)
        if step and on_terminal:
            print(f"\r\033[K{f'  {step[1]} {step[2]}'[:width]}", end="", flush=True)
    if on_terminal:
        print("\r\033[K", end="", flush=True)
    return process.wait(), lines


def what_failed(lines: list[str]) -> str:
    """The compiler's first complaints when there are any, else the end of the log."""
    errors = [n for n, line in enumerate(lines) if re.search(r"\berror\b", line, re.IGNORECASE)]
    first = errors[0] - 2 if errors else len(lines) - 40
    return "\n".join(lines[max(first, 0) :][:40])


def main() -> int:
    levels, werror = (os.environ.get("ONNXGRAD_LEVELS") or "native"), os.environ.get("WERROR")
    compiler = (os.environ.get("CXX") or "c++").split()[0]
    if not shutil.which(compiler):
        print(
            f"onnxgrad needs a C++17 compiler: none was found as '{compiler}' (on Debian: apt install g++)"
        )
        return 1
    print(announcement(levels), flush=True)
    started = time.perf_counter()
    status, lines = follow(pip_command(levels, werror or "OFF"))
    if status:
        print(f"{what_failed(lines)}\n\nthe build failed: the lines above are where it began")
        return status
    print(f"built in {time.perf_counter() - started:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
