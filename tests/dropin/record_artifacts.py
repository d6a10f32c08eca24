"""Record what onnxruntime-training-cpu 1.19.2 makes of the networks in nets.py: `make goldens-dropin`.

`tests/golden/dropin/<net>/` gets the model, its batches, the artifacts, and for each optimizer the losses of 100 steps
and the checkpoints half way and at the end; `names.json` the public names of the old modules.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from dropin import nets  # noqa: E402
from golden.record import old_python  # noqa: E402

GOLDEN = ROOT / "tests" / "golden" / "dropin"
OPTIMIZERS = {"AdamW": "1e-3", "SGD": "0.02"}
# The old package cannot load the eval model that it makes of a batch normalisation.
WITHOUT_EVAL = {"cnn"}
KEPT = ("optimizer_model.onnx", "checkpoint_half", "checkpoint_end", "losses.npy")


def run(python: Path, *arguments: object) -> str:
    command = [python, HERE / "old_program.py", *arguments]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return done.stdout


def record(name: str, python: Path) -> None:
    net, model = nets.NETS[name]()
    folder = GOLDEN / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    arrays = {}
    for i, (x, y) in enumerate(nets.batches(name, model)):
        arrays[f"x{i}"], arrays[f"y{i}"] = x, y
    np.savez(folder / "batches.npz", **arrays)
    evaluate = "no" if name in WITHOUT_EVAL else "yes"
    for optimizer, rate in OPTIMIZERS.items():
        with tempfile.TemporaryDirectory() as work:
            run(python, HERE / "program.py", folder / "model.onnx", folder / "batches.npz", work,
                nets.LOSSES[name], optimizer, rate, evaluate, *net.frozen)  # fmt: skip
            (folder / optimizer).mkdir()
            for file in KEPT:
                shutil.copy(Path(work) / file, folder / optimizer / file)
            for file in ("training_model.onnx", "eval_model.onnx", "checkpoint"):
                shutil.copy(Path(work) / file, folder / file)
    print(name, "recorded")


def main() -> None:
    python = old_python()
    for name in sys.argv[1:] or nets.NETS:
        record(name, python)
    names = run(python, HERE / "record_names.py", "onnxruntime.training")
    (GOLDEN / "names.json").write_text(names + "\n")


if __name__ == "__main__":
    main()
