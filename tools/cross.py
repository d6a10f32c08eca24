"""Compile the library for ONNX Runtime and the C++ tests for every system that wheels are made for: `make cross`.

`python tools/cross.py aarch64-linux-gnu.2.28` for one of them. Warnings are errors. What runs on this machine is run.
"""

from __future__ import annotations

import subprocess
import sys
import time

import zig


def compile_for(to: zig.Target) -> str:
    """One line about the target; raises CalledProcessError."""
    started = time.perf_counter()
    folder = zig.library(to)
    size = (folder / to.library).stat().st_size / 1e6
    line = f"{to.library} has {size:.1f} MB, {time.perf_counter() - started:.0f} s"
    if to.here:
        subprocess.run(["ctest", "--test-dir", folder, "--output-on-failure"],
                       env=zig.environ(), check=True, capture_output=True, text=True)  # fmt: skip
        line += ", C++ tests passed"
    return line


def main() -> int:
    failed = False
    for to in [zig.target(name) for name in sys.argv[1:]] or zig.TARGETS:
        try:
            print(f"✓ {to.triple}: {compile_for(to)}", flush=True)
        except subprocess.CalledProcessError as error:
            failed = True
            print(f"✗ {to.triple}\n{error.stdout[-6000:]}{error.stderr[-3000:]}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
