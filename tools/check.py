"""The slow checks, one after the other: `make check`. Each prints one line; the details of a failure follow it.

C++ tests under AddressSanitizer and UBSan · every instruction set · many property-test examples · PyTorch live.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from environments import ROOT, environment

BUILD = ROOT / "build" / "sanitize"


def step(title: str, *commands: list, **variables: str) -> bool:
    """Run the commands; print the title, the verdict and, when one fails, its output."""
    started = time.perf_counter()
    for command in commands:
        done = subprocess.run(
            [str(c) for c in command],
            cwd=ROOT,
            capture_output=True,
            text=True,
            env={**os.environ, **variables},
        )
        if done.returncode:
            print(f"✗ {title}\n{done.stdout[-6000:]}{done.stderr[-6000:]}", flush=True)
            return False
    print(f"✓ {title} ({time.perf_counter() - started:.0f} s)", flush=True)
    return True


def sanitizers() -> bool:
    configure = ["cmake", "-S", ROOT, "-B", BUILD, "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DONNXGRAD_PYTHON=OFF",
                 "-DONNXGRAD_TESTS=ON", "-DONNXGRAD_SANITIZE=ON", "-DONNXGRAD_WERROR=ON"]  # fmt: skip
    build = ["cmake", "--build", BUILD, "-j", "2"]
    test = ["ctest", "--test-dir", BUILD, "--output-on-failure"]
    return step("C++ tests under AddressSanitizer and UBSan", configure, build, test)


def instruction_sets() -> bool:
    tests = ["tests/test_kernels.py", "tests/test_golden.py"]
    return all(
        step(
            f"kernels compiled for {level}",
            [sys.executable, "-m", "pytest", "-n", "2", *tests],
            ONNXGRAD_ISA=level,
        )
        for level in ("baseline", "avx2", "avx512")
    )


def properties() -> bool:
    command = [sys.executable, "-m", "pytest", "-n", "2", "-m", "not live", "-k", "property"]
    return step("property tests, 2,000 examples each", command, ONNXGRAD_EXAMPLES="2000")


def live() -> bool:
    packages = [
        "torch==2.13.0",
        "numpy",
        "onnx",
        "onnx-ir",
        "onnxruntime",
        "rich",
        "safetensors",
        "pytest",
        "pytest-xdist",
        "hypothesis",
    ]
    python = environment("live", sys.executable, packages)
    install = [
        python,
        "-m",
        "pip",
        "install",
        "-qq",
        "--no-deps",
        "--disable-pip-version-check",
        str(ROOT),
    ]
    return step(
        "PyTorch in the same process", install, [python, "-m", "pytest", "-n", "2", "-m", "live"]
    )


def training() -> bool:
    """Twenty kills at random moments, and 10,000 steps in constant memory."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "-m", "not live", "tests/train"]
    variables = {"ONNXGRAD_KILLS": "20", "ONNXGRAD_STEPS": "10000"}
    return step("20 kills and 10,000 training steps", command, **variables)


def main() -> None:
    checks = {
        "sanitizers": sanitizers,
        "instruction_sets": instruction_sets,
        "properties": properties,
        "live": live,
        "training": training,
    }
    chosen = sys.argv[1:] or list(checks)
    results = [checks[name]() for name in chosen]  # all of them, also after a failure
    raise SystemExit(not all(results))


if __name__ == "__main__":
    main()
