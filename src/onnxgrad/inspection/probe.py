"""Does onnxruntime take the model? Asked in a child process: a model may crash the runtime itself.

`python -m onnxgrad.inspection.probe FILE` is that child.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from onnxgrad.errors import ModelError
from onnxgrad.files.paths import printable
from onnxgrad.ort import register

SECONDS = 60


@dataclass(frozen=True)
class Verdict:
    """`text` is empty when the runtime loads the model."""

    loads: bool
    text: str
    crashed: bool = False


class Probe:
    """Load the file in onnxruntime, in another process; begins at once, and `verdict` waits for it."""

    def __init__(self, path: str | os.PathLike[str]):
        command = [sys.executable, "-m", "onnxgrad.inspection.probe", os.fspath(path)]
        self.child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def verdict(self) -> Verdict:
        try:
            out, _ = self.child.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            self.stop()
            text = f"onnxruntime did not finish loading it in {SECONDS} s"
            return Verdict(False, text, crashed=True)
        code = self.child.returncode
        if code < 0:
            name = signal.Signals(-code).name
            return Verdict(False, f"onnxruntime crashed while loading it ({name})", crashed=True)
        try:
            answer = json.loads(out.splitlines()[-1])
        except (IndexError, ValueError):
            return Verdict(False, "onnxruntime ended without an answer while loading it")
        return Verdict(answer["loads"], answer["text"])

    def stop(self) -> None:
        """Stop the child: its verdict is not needed."""
        self.child.kill()
        self.child.communicate()

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        if self.child.poll() is None:
            self.stop()


@contextlib.contextmanager
def first_load(path: str | os.PathLike[str]) -> Iterator[None]:
    """Load a model that nobody has tried yet beside the block; raise ModelError after it where that crashed."""
    with Probe(path) as running:
        yield
        verdict = running.verdict()
    if verdict.crashed:
        raise ModelError(f"{printable(path)}: {verdict.text}")


def probe(path: str | os.PathLike[str]) -> Verdict:
    """The verdict at once."""
    with Probe(path) as running:
        return running.verdict()


def _child(path: str) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        register(options)  # not `session`: it reads the model, which takes longer than all of this
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        answer = {"loads": True, "text": ""}
    except Exception as error:
        text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error))
        answer = {
            "loads": False,
            "text": f"onnxruntime {onnxruntime.__version__} refuses it: {text}",
        }
    print(json.dumps(answer))


if __name__ == "__main__":
    _child(sys.argv[1])
