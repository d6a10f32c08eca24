"""Run adapters that onnxgrad wrote in several versions of stock onnxruntime, without onnxgrad.

`python tools/try_adapters.py [1.20.1 newest]`. Each version gets an environment under .envs, with onnxruntime and NumPy
alone. Prints the largest difference from what the Trainer predicts, and fails above 1e-5 of the largest output.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from environments import ROOT, environment

VERSIONS = ("1.20.1", "newest")  # the first with adapters, and the newest
BOUND = 1e-5

PROGRAM = """
import json, sys
from pathlib import Path
import numpy as np
import onnxruntime

found = {}
for folder in sorted(Path(sys.argv[1]).iterdir()):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
    adapter = onnxruntime.LoraAdapter()
    adapter.Load(str(folder / "adapter.onnx_adapter"))
    active = onnxruntime.RunOptions()
    active.add_active_adapter(adapter)
    data = np.load(folder / "expected.npz")
    feeds = {session.get_inputs()[0].name: data["x"]}
    got, plain = session.run(None, feeds, active)[0], session.run(None, feeds)[0]
    largest = np.abs(data["y"]).max()
    found[folder.name] = [float(np.abs(a - data[k]).max() / largest) for a, k in ((got, "y"), (plain, "base"))]
print(json.dumps({"version": onnxruntime.__version__, "found": found}))
"""


def write_adapters(folder: Path) -> None:
    """One folder per network and variant, after a few steps; with inputs and what the Trainer makes of them."""
    sys.path.insert(0, str(ROOT / "tests"))
    from model.lora_problems import MODELS

    from onnxgrad import Trainer
    from onnxgrad.model.lora import Lora

    for name, make in MODELS.items():
        for variant in ("lora", "rslora", "dora"):
            problem = make()
            lora = Lora(**{**problem.lora, "variant": variant})
            trainer = Trainer(problem.model(), loss="cross_entropy", lr=1e-2, lora=lora)
            x, y = problem.batches[0]
            base = trainer.predict(x)
            for _ in range(5):
                trainer.step(x, y)
            to = folder / f"{name}-{variant}"
            trainer.save_adapter(to)
            np.savez(to / "expected.npz", x=x, y=trainer.predict(x), base=base)


def main() -> int:
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "adapters"
        write_adapters(folder)
        program = Path(work) / "run.py"
        program.write_text(PROGRAM)
        for version in sys.argv[1:] or VERSIONS:
            pinned = "onnxruntime" if version == "newest" else f"onnxruntime=={version}"
            python = environment(f"adapters-{version}", sys.executable, [pinned, "numpy"])
            done = subprocess.run([python, program, folder], capture_output=True, text=True)
            if done.returncode:
                print(f"onnxruntime {version}: {done.stderr[-500:]}")
                failed += 1
                continue
            found = json.loads(done.stdout)
            worst = {k: max(v) for k, v in found["found"].items()}
            failed += max(worst.values()) > BOUND
            listed = ", ".join(f"{k} {v:.1e}" for k, v in worst.items())
            print(
                f"onnxruntime {found['version']}: {len(worst)} adapters, with and without: {listed}"
            )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
