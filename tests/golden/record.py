"""Record what onnxruntime-training-cpu 1.19.2 computes for the cases of each operator.

Run `make goldens`, or `.venv/bin/python tests/golden/record.py [operator ...]`. The old package replaces
`onnxruntime`, so it gets an environment of its own, `.envs/ort-training`, made here with Python 3.8 to 3.11. This
process writes one small model per case; `run_old.py` runs them there, one process per operator, because some
kernels of the old package end the process. The results are `tests/golden/<op>.npz`.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from cases import cases_of  # noqa: E402
from ort_models import node_model  # noqa: E402

from onnxgrad.contracts import Contract, contracts  # noqa: E402

ENVIRONMENT = ROOT / ".envs" / "ort-training"
PACKAGES = ["onnxruntime-training-cpu==1.19.2", "numpy<2", "onnx==1.16.2"]
LARGEST = 3_000  # elements of a case: the files stay small


def old_python() -> Path:
    """The interpreter of the old package's environment; made when it is missing."""
    python = ENVIRONMENT / "bin" / "python"
    if python.exists():
        return python
    candidates = (f"python3.{minor}" for minor in (11, 10, 9, 8))
    base = next((found for c in candidates if (found := shutil.which(c))), None)
    if base is None:
        raise SystemExit(
            "onnxruntime-training-cpu 1.19.2 needs Python 3.8 to 3.11, and none was found on PATH"
        )
    subprocess.run([base, "-m", "venv", str(ENVIRONMENT)], check=True)
    subprocess.run([python, "-m", "pip", "install", "-qq", *PACKAGES], check=True)
    return python


def write_cases(contract: Contract, folder: Path) -> list[str]:
    """One model and one file of inputs per case that is small enough; returns the titles."""
    table = importlib.import_module(f"cases.{contract.python_name}")
    chosen = getattr(table, "GOLDEN", {case.title for case in table.CASES})
    titles = []
    for case in cases_of(contract):
        inputs = case.inputs(np.float32)
        if sum(a.size for a in inputs.values()) > LARGEST or case.title not in chosen:
            continue
        stem = folder / str(len(titles))
        model = node_model(contract, inputs, case.attributes, case.wanted())
        stem.with_suffix(".onnx").write_bytes(model.SerializeToString())
        np.savez(stem.with_suffix(".in.npz"), **inputs)
        titles.append(case.title)
    return titles


def record(contract: Contract, python: Path) -> str:
    """Write tests/golden/<op>.npz; returns a line that says what was recorded."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        titles = write_cases(contract, folder)
        for index in range(len(titles)):
            subprocess.run(
                [python, ROOT / "tests" / "golden" / "run_old.py", folder, str(index)],
                capture_output=True,
                env={**os.environ, "PYTHONPATH": ""},
            )
        arrays, refused = {}, []
        for index, title in enumerate(titles):
            results = folder / f"{index}.out.npz"
            if not results.exists():
                refused.append(title)
                continue
            inputs = np.load(folder / f"{index}.in.npz")
            arrays.update({f"{title}|in|{k}": inputs[k] for k in inputs.files})
            outputs = np.load(results)
            arrays.update({f"{title}|out|{k}": outputs[k] for k in outputs.files})
    arrays["refused"] = np.array(refused, dtype=str)
    np.savez_compressed(ROOT / "tests" / "golden" / f"{contract.python_name}.npz", **arrays)
    return f"{contract.name}: {len(titles) - len(refused)} recorded, {len(refused)} refused by the old kernel"


def main() -> None:
    wanted = sys.argv[1:] or list(contracts())
    python = old_python()
    for name in wanted:
        print(record(contracts()[name], python), flush=True)


if __name__ == "__main__":
    main()
