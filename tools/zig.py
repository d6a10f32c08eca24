"""Clang with the headers and libraries of other systems, from the package `ziglang`: a compiler for each target.

`make cross` compiles with it for every target, `make wheels` for a Linux that is older than this machine's, and
`make arm` for a processor that is emulated.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from environments import ROOT, environment

PACKAGES = ("ziglang==0.17.0", "cmake", "ninja", "nanobind>=3.1,<4", "scikit-build-core>=1,<2")


@dataclass(frozen=True)
class Target:
    """A system and a processor, as Zig and as CMake call them."""

    triple: str
    system: str
    processor: str
    library: str

    @property
    def folder(self) -> Path:
        return ROOT / "build" / "zig" / self.triple

    @property
    def here(self) -> bool:
        """Whether what is compiled for it runs on this machine as it is."""
        machine = os.uname()
        return (machine.sysname, machine.machine) == (self.system, self.processor)


# glibc 2.28: the oldest that onnxruntime's own wheels run on.
TARGETS = (
    Target("x86_64-linux-gnu.2.28", "Linux", "x86_64", "libonnxgrad_ops.so"),
    Target("aarch64-linux-gnu.2.28", "Linux", "aarch64", "libonnxgrad_ops.so"),
    Target("aarch64-macos.13.3", "Darwin", "arm64", "libonnxgrad_ops.dylib"),
    Target("x86_64-windows-gnu", "Windows", "AMD64", "onnxgrad_ops.dll"),
)


def target(triple: str) -> Target:
    return next(t for t in TARGETS if t.triple == triple)


def python() -> Path:
    """An interpreter with the compiler and the build tools."""
    return environment("zig", sys.executable, PACKAGES)


def nanobind() -> str:
    """The folder of nanobind's CMake files."""
    command = [python(), "-m", "nanobind", "--cmake_dir"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def toolchain(to: Target) -> Path:
    """CMake's description of the compiler for that target."""
    interpreter = python()
    to.folder.mkdir(parents=True, exist_ok=True)
    tools = {
        "CMAKE_CXX_COMPILER": ("c++", f"c++ -target {to.triple}"),
        "CMAKE_AR": ("ar", "ar"),
        "CMAKE_RANLIB": ("ranlib", "ranlib"),
        "CMAKE_RC_COMPILER": ("rc", "rc"),
        "CMAKE_INSTALL_NAME_TOOL": ("install_name_tool", "version"),  # asked for, never used
    }
    lines = []
    if not to.here:
        lines += [
            f"set(CMAKE_SYSTEM_NAME {to.system})",
            f"set(CMAKE_SYSTEM_PROCESSOR {to.processor})",
        ]
        # headers and libraries of this machine are of no use there
        lines += [f"set(CMAKE_FIND_ROOT_PATH_MODE_{what} ONLY)" for what in ("LIBRARY", "INCLUDE")]
    if to.system == "Darwin":
        lines += ['set(CMAKE_OSX_SYSROOT "")', 'set(CMAKE_OSX_DEPLOYMENT_TARGET "")']
    for variable, (name, words) in tools.items():
        wrapper = to.folder / name
        script = f'#!/bin/sh\nexec "{interpreter}" -m ziglang {words} "$@"\n'
        if (
            not wrapper.exists() or wrapper.read_text() != script
        ):  # a new date would be a new compiler
            wrapper.write_text(script)
            wrapper.chmod(0o755)
        lines.append(f'set({variable} "{wrapper}")')
    file = to.folder / "toolchain.cmake"
    file.write_text("\n".join(lines) + "\n")
    return file


def environ() -> dict[str, str]:
    """Variables for a build: the tools of the environment first; ccache told what it cannot see in a script."""
    tools = str(python().parent)
    path = os.pathsep.join([tools, os.environ.get("PATH", "")])
    return {
        **os.environ,
        "PATH": path,
        "CCACHE_COMPILERTYPE": "clang",
        "CCACHE_COMPILERCHECK": "content",
    }


def build(to: Target, folder: Path, *options: str) -> None:
    """Configure and compile into `folder`; raises CalledProcessError."""
    configure = ["cmake", "-G", "Ninja", "-S", ROOT, "-B", folder, "-DCMAKE_BUILD_TYPE=Release",
                 f"-DCMAKE_TOOLCHAIN_FILE={toolchain(to)}", "-DONNXGRAD_LEVELS=all", *options]  # fmt: skip
    for command in (configure, ["cmake", "--build", folder, "-j", str(os.cpu_count())]):
        subprocess.run(command, env=environ(), check=True, capture_output=True, text=True)


def library(to: Target) -> Path:
    """The folder with the library for ONNX Runtime and the C++ tests, warnings being errors. Its kernels go into every
    other build for that target (ONNXGRAD_KERNELS)."""
    folder = to.folder / "library"
    build(to, folder, "-DONNXGRAD_PYTHON=OFF", "-DONNXGRAD_TESTS=ON", "-DONNXGRAD_WERROR=ON")
    return folder
