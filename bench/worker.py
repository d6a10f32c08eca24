"""A contender's process, which is asked by lines of JSON (bench/workers)."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

WORKERS = Path(__file__).resolve().parent / "workers"
LONGEST_AWAKE = 0.5  # seconds


class Worker:
    """`script` of bench/workers, run by `python` and waiting for requests."""

    def __init__(self, python: Path | str, script: str, *arguments: str):
        own = str(python) == sys.executable  # other environments must not see this one's packages
        self.process = subprocess.Popen(
            [python, WORKERS / script, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", "") if own else ""},
        )  # fmt: skip

    def ask(self, **request) -> dict:
        """One request, one answer; a worker that died answers with an error."""
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        return json.loads(line) if line else {"error": "the process ended"}

    def times(self, seconds: float, clock: str = "wall") -> list[float]:
        """Times of single calls. Returns when the process sleeps: threads of onnxruntime and PyTorch go on waiting for
        work for some milliseconds, on a processor that the next contender needs."""
        times = self.ask(time=seconds, clock=clock)["times"]
        end = time.perf_counter() + LONGEST_AWAKE
        while self.is_awake() and time.perf_counter() < end:
            time.sleep(1e-3)
        return times

    def is_awake(self) -> bool:
        """Whether one of its threads runs, or would run if it had a processor."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        return any(state_of(task) == "R" for task in (tasks.iterdir() if tasks.exists() else ()))

    def peak(self) -> float:
        """The process's largest resident size so far, in MB."""
        status = Path(f"/proc/{self.process.pid}/status")
        for line in status.read_text().splitlines() if status.exists() else ():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
        return math.nan

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def state_of(task: Path) -> str:
    """R: it runs or waits for a processor; S: it sleeps. Linux."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # it has ended
        return ""
