"""Does onnxruntime take the model? Asked in a child process: a model may crash the runtime itself.

`python -m onnxgrad.inspection.probe FILE` is that child.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass

SECONDS = 60


@dataclass(frozen=True)
class Verdict:
    """`text` is empty when the runtime loads the model."""

    loads: bool
    text: str


def probe(path: str | os.PathLike[str]) -> Verdict:
    """Load the file in onnxruntime, in another process."""
    command = [sys.executable, "-m", "onnxgrad.inspection.probe", os.fspath(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return Verdict(False, f"onnxruntime did not finish loading it in {SECONDS} s")
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        return Verdict(False, f"onnxruntime crashed while loading it ({name})")
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return Verdict(False, "onnxruntime ended without an answer while loading it")
    return Verdict(answer["loads"], answer["text"])


def _child(path: str) -> None:
    import onnxruntime

    import onnxgrad

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        onnxgrad.session(path, options)
        answer = {"loads": True, "text": ""}
    except Exception as error:
        text = str(error).replace("[ONNXRuntimeError] : ", "")
        answer = {
            "loads": False,
            "text": f"onnxruntime {onnxruntime.__version__} refuses it: {text}",
        }
    print(json.dumps(answer))


if __name__ == "__main__":
    _child(sys.argv[1])
