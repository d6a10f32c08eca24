"""Run onnxgrad on an emulated ARM processor: `make arm`.

qemu runs programs of aarch64 on this machine. A Debian for arm64 is unpacked under .envs, with its Python 3.11 and
onnxruntime's own aarch64 wheel; apt finds it where this machine's packages come from. Then: the C++ tests; the demo for
one epoch; every case of every operator, judged, and compared bit for bit with the instruction sets of this machine
(`--beside .envs/python-3.12/bin/python`: those of a wheel, which has them all).

It needs a Debian of the same release, or one whose apt sources offer arm64, and qemu-aarch64 on the PATH or named by
QEMU (8 or newer: onnxruntime does not load in 7.2).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import zig
from environments import ROOT

FOLDER = ROOT / ".envs" / "arm64"
SYSTEM, PACKAGES = FOLDER / "root", FOLDER / "packages"
DEBIAN = ("python3.11", "libstdc++6", "libgcc-s1")
PYTHON = ("onnxruntime", "onnx", "onnx-ir", "numpy", "safetensors", "flatbuffers", "rich", "pyyaml")
WHEELS = (
    "manylinux_2_28_aarch64",
    "manylinux_2_27_aarch64",
    "manylinux_2_26_aarch64",
    "manylinux2014_aarch64",
)
CASES, BITS = ROOT / "tools" / "case_bits.py", FOLDER / "arm.json"
TARGET = zig.target("aarch64-linux-gnu.2.28")


def run(*command: object, **more) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in command], check=True, **more)


def qemu() -> str:
    found = (
        os.environ.get("QEMU")
        or shutil.which("qemu-aarch64")
        or shutil.which("qemu-aarch64-static")
    )
    if not found:
        raise SystemExit(
            "make arm needs qemu-aarch64 (Debian: apt install qemu-user), or QEMU=/path/to/it"
        )
    return found


def make_system() -> None:
    """Unpack the packages of an arm64 Debian; nothing is installed on this machine."""
    if (SYSTEM / "usr/bin/python3.11").exists():
        return
    state = FOLDER / "apt"
    for part in ("lists/partial", "cache/archives/partial"):
        (state / part).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    settings = {"APT::Architecture": "arm64", "APT::Architectures": "arm64", "Dir::State::lists": state / "lists",
                "Dir::State::status": state / "status", "Dir::Cache": state / "cache", "Acquire::Languages": "none",
                "APT::Install-Recommends": "false", "Debug::NoLocking": "true"}  # fmt: skip
    (state / "apt.conf").write_text("".join(f'{k} "{v}";\n' for k, v in settings.items()))
    variables = {**os.environ, "APT_CONFIG": str(state / "apt.conf")}
    run("apt-get", "-qq", "update", env=variables)
    run("apt-get", "-qq", "-y", "--download-only", "install", *DEBIAN, env=variables)
    for package in (state / "cache" / "archives").glob("*.deb"):
        run("dpkg-deb", "-x", package, SYSTEM)


def make_packages() -> None:
    if PACKAGES.exists():
        return
    platforms = [word for name in WHEELS for word in ("--platform", name)]
    run(sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--target", PACKAGES,
        "--only-binary", ":all:", "--python-version", "3.11", *platforms, *PYTHON)  # fmt: skip


def interpreter() -> Path:
    """A command that is the emulated Python; processes that it starts are emulated, too."""
    command = FOLDER / "python"
    command.write_text(
        f'#!/bin/sh\nexport PYTHONHOME="{SYSTEM}/usr" PYTHONPATH="{FOLDER}/onnxgrad:{PACKAGES}"\n'
        f'exec "{qemu()}" -L "{SYSTEM}" -0 "$0" "{SYSTEM}/usr/bin/python3.11" "$@"\n'
    )
    command.chmod(0o755)
    return command


def build() -> Path:
    """The package as Python will find it, with both libraries; the folder of the C++ tests."""
    python = shutil.which("python3.11")
    if not python:
        raise SystemExit("make arm needs python3.11 for its headers")
    where = "import sysconfig; print(sysconfig.get_path('include'))"
    headers = run(python, "-c", where, capture_output=True, text=True).stdout.strip()
    # Its pyconfig.h is of this machine: both have 64 bits, and the same sizes of everything.
    compiled, folder = zig.library(TARGET), TARGET.folder / "python"
    zig.build(TARGET, folder, f"-DONNXGRAD_KERNELS={compiled}", f"-DPython_EXECUTABLE={python}",
              f"-DPython_INCLUDE_DIR={headers}", f"-Dnanobind_ROOT={zig.nanobind()}")  # fmt: skip
    package = FOLDER / "onnxgrad" / "onnxgrad"
    shutil.copytree(ROOT / "src" / "onnxgrad", package, dirs_exist_ok=True)
    shutil.copy(folder / TARGET.library, package)
    shutil.copy(next(folder.glob("_native*.so")), package / "_native.so")
    return compiled


def compared(there: dict, here: dict) -> str:
    """How many outputs of cases with equal inputs have equal bits, and the operators where some differ."""
    cases, differ, drawn = Counter(), Counter(), 0
    for name in there.keys() & here.keys():
        if there[name]["in"] != here[name]["in"]:
            drawn += 1
            continue
        operator = name.partition(":")[0]
        cases[operator] += 1
        differ[operator] += there[name]["out"] != here[name]["out"]
    found = [f"{op} {n} of {cases[op]}" for op, n in sorted((+differ).items())]
    return (
        f"{cases.total() - differ.total()} of {cases.total()} cases of {len(cases)} operators have equal bits "
        f"({drawn} draw other inputs); different: {', '.join(found) or 'none'}"
    )


def has_level(python: Path, level: str) -> bool:
    """Whether that build has the instruction set, and this machine's processor too."""
    ask = "from onnxgrad import _native; print(_native.instruction_set())"
    variables = {**os.environ, "ONNXGRAD_ISA": level}
    said = run(python, "-c", ask, env=variables, capture_output=True, text=True).stdout
    return said.strip() == level


def judge_cases(emulated: Path, only: str) -> None:
    """Every case runs there. This machine judges those that have the same inputs here, as it is quicker."""
    outputs = FOLDER / "outputs"
    shutil.rmtree(outputs, ignore_errors=True)
    outputs.mkdir()
    run(emulated, CASES, BITS, "--only", only, "--keep", outputs)
    run(sys.executable, CASES, FOLDER / "judged.json", "--only", only, "--judge", outputs)
    others = outputs / "unjudged.json"
    if json.loads(others.read_text()):
        run(emulated, CASES, FOLDER / "rest.json", "--only", only, "--names", others)


def compare_bits(beside: Path, only: str) -> None:
    here = FOLDER / "here.json"
    for level in ("baseline", "avx2", "avx512"):
        if not has_level(beside, level):
            print(
                f"beside {level}: not in this build (ARM='--beside' a wheel's Python)", flush=True
            )
            continue
        run(beside, CASES, here, "--only", only, env={**os.environ, "ONNXGRAD_ISA": level})
        answer = compared(*(json.loads(f.read_text()) for f in (BITS, here)))
        print(f"beside {level}: {answer}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="operators whose names begin so")
    parser.add_argument(
        "--beside",
        type=Path,
        default=sys.executable,
        help="a Python with the build to compare with",
    )
    options = parser.parse_args()
    qemu()
    FOLDER.mkdir(parents=True, exist_ok=True)
    make_system()
    make_packages()
    folder, python = build(), interpreter()
    for test in sorted(p for p in folder.glob("test_*") if p.is_file()):
        run(qemu(), "-L", SYSTEM, test, stdout=subprocess.DEVNULL)
        print(f"✓ {test.name}", flush=True)
    run(python, "-m", "onnxgrad", "demo", "--epochs", "1", "--folder", FOLDER / "demo")
    judge_cases(python, options.only)
    compare_bits(options.beside, options.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
