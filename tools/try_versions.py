"""Run the cases of every operator in several versions of stock onnxruntime, with one and the same wheel.

`make versions`, or `python tools/try_versions.py 1.19.2 1.31.1`. Each version gets an environment under .envs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from environments import ALL_LEVELS, ROOT, environment

# Oldest supported, the ones around a change of the interface, and the newest.
VERSIONS = ("1.19.2", "1.20.1", "1.22.1", "1.24.4", "1.27.0", "newest")
NAMES = ("kernels/test_every_case", "kernels/test_large", "kernels/test_peak_memory", "kernels/test_errors",
         "hosts/test_hosts")  # fmt: skip
TESTS = [f"tests/{name}.py" for name in NAMES]


def build_wheel(folder: str) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-qq",
        "--no-deps",
        "--no-build-isolation",
        *ALL_LEVELS,
        "-w",
        folder,
        str(ROOT),
    ]
    subprocess.run(command, check=True)
    return next(Path(folder).glob("onnxgrad-*.whl"))


def try_version(version: str, wheel: Path, work: Path) -> str:
    """The last line of the tests in that version."""
    pinned = "onnxruntime" if version == "newest" else f"onnxruntime=={version}"
    python = environment(
        f"onnxruntime-{version}",
        sys.executable,
        [pinned, "onnx", "onnx-ir", "rich", "pytest", "pytest-xdist", "hypothesis"],
    )
    install = [
        python,
        "-m",
        "pip",
        "install",
        "-qq",
        "--disable-pip-version-check",
        "--no-deps",
        "--force-reinstall",
        wheel,
    ]
    subprocess.run(install, check=True)
    # away from the sources, so that the installed wheel is what is tested
    done = subprocess.run(
        [python, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", *TESTS],
        cwd=work,
        capture_output=True,
        text=True,
    )
    lines = [
        line
        for line in done.stdout.splitlines()
        if line.startswith(("FAILED", "ERROR")) or " passed" in line or " failed" in line
    ]
    return "\n    ".join(lines[-12:]) or done.stdout[-500:] + done.stderr[-500:]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(folder)
        work = Path(folder) / "work"
        shutil.copytree(ROOT / "tests", work / "tests")
        shutil.copy(ROOT / "pyproject.toml", work)
        failed = False
        for version in sys.argv[1:] or VERSIONS:
            result = try_version(version, wheel, work)
            failed = failed or "failed" in result or "passed" not in result
            print(f"onnxruntime {version:8} {result}", flush=True)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
