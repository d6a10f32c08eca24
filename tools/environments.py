"""Virtual environments under .envs, made when they are missing: for other versions and for the peers."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# For pip: every instruction set, in a folder beside the one of the build in place, which has this machine's alone.
ALL_LEVELS = ("-C", "cmake.define.ONNXGRAD_LEVELS=all", "-C", "build-dir=build/all/{wheel_tag}")


def environment(name: str, python: str, packages: Sequence[str]) -> Path:
    """The interpreter of `.envs/<name>`, with the packages in it; remade when the packages changed."""
    folder = ROOT / ".envs" / name
    interpreter, mark = folder / "bin" / "python", folder / "packages"
    wanted = "\n".join(packages)
    if not mark.exists() or mark.read_text() != wanted:
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        command = [
            interpreter,
            "-m",
            "pip",
            "install",
            "-qq",
            "--disable-pip-version-check",
            *packages,
        ]
        subprocess.run(command, check=True)
        mark.write_text(wanted)
    return interpreter
