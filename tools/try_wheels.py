"""Build a wheel on every Python from 3.10 to 3.13 that is found, and try it in a clean environment: `make wheels`."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MINORS = (10, 11, 12, 13)
TRY = (
    "import numpy as np, onnxgrad; r = onnxgrad.kernels.relu_grad(np.float32([1, 2]), np.float32([-1, 1])); "
    "assert r.tolist() == [0, 2]; import onnxruntime; onnxgrad.register(onnxruntime.SessionOptions()); "
    "print('onnxgrad', onnxgrad.__version__, 'on onnxruntime', onnxruntime.__version__, 'NumPy', np.__version__)"
)


def try_python(python: str) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "source"  # a clean copy: no build folder is shared between versions
        shutil.copytree(
            ROOT, source, ignore=shutil.ignore_patterns(".git", ".venv", ".envs", "build")
        )
        subprocess.run([python, "-m", "venv", folder / "env"], check=True)
        interpreter = folder / "env" / "bin" / "python"
        pip = [interpreter, "-m", "pip", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, "wheel", "--no-deps", "-w", folder / "wheels", source], check=True)
        wheel = next((folder / "wheels").glob("*.whl"))
        subprocess.run([*pip, "install", wheel], check=True)
        done = subprocess.run([interpreter, "-c", TRY], capture_output=True, text=True, cwd=folder)
        return f"{wheel.name} ({wheel.stat().st_size // 1024} KiB): {done.stdout.strip() or done.stderr.strip()}"


def main() -> None:
    for minor in MINORS:
        python = shutil.which(f"python3.{minor}")
        works = (
            python and subprocess.run([python, "--version"], capture_output=True).returncode == 0
        )
        print(f"Python 3.{minor}: {try_python(python) if works else 'not found'}", flush=True)


if __name__ == "__main__":
    main()
