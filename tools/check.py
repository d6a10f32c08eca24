"""The slow checks, one after the other: `make check`. Each prints one line; the details of a failure follow it.

C++ tests and every case of every operator under AddressSanitizer and UBSan · every instruction set · many
property-test examples · PyTorch live · killed and long training · trainings stopped in every way · a minute of each
fuzzer (`--minutes 30`: longer).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from environments import ALL_LEVELS, ROOT, environment

LEVELS = ("baseline", "avx2", "avx512")  # each processor has those before its best
BUILD = ROOT / "build" / "sanitize"
FUZZ = ROOT / "build" / "fuzz"


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
    """The C++ tests, and every case of every operator, compiled with AddressSanitizer and UBSan."""
    configure = ["cmake", "-S", ROOT, "-B", BUILD, "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DONNXGRAD_PYTHON=ON",
                 f"-DPython_EXECUTABLE={sys.executable}", "-DONNXGRAD_TESTS=ON", "-DONNXGRAD_SANITIZE=ON",
                 "-DONNXGRAD_WERROR=ON"]  # fmt: skip
    build = ["cmake", "--build", BUILD, "-j", "2"]
    test = ["ctest", "--test-dir", BUILD, "--output-on-failure"]
    passed = step("C++ tests under AddressSanitizer and UBSan", configure, build, test)
    return passed and all(sanitized_cases(level) for level in LEVELS)


# The tests with the sanitized package in the place of the installed one.
SANITIZED_TESTS = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if not type(f).__module__.startswith("_editable")]
sys.path.insert(0, sys.argv[1])
import onnxgrad, pytest
assert onnxgrad.__file__.startswith(sys.argv[1]), onnxgrad.__file__
sys.exit(pytest.main(sys.argv[2:]))
"""


def sanitized_cases(level: str) -> bool:
    package = BUILD / "package"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(ROOT / "src" / "onnxgrad", package / "onnxgrad")
    install = ["cmake", "--install", BUILD, "--prefix", package]
    # libstdc++ as well: AddressSanitizer looks for what throws before Python loads anything that does
    asan, throws = (
        subprocess.check_output(["g++", f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libstdc++.so")
    )
    tests = [sys.executable, "-c", SANITIZED_TESTS, package, "-q", "-n", "0", "-p", "no:cacheprovider",
             "-k", "numpy_host or test_right", "tests/kernels"]  # fmt: skip
    under = [
        "env",
        f"LD_PRELOAD={asan} {throws}",
        f"ASAN_OPTIONS=detect_leaks=0:log_path={BUILD}/found",
    ]
    title = f"every case of every operator under the sanitizers, {level}"
    return step(title, install, [*under, *tests], ONNXGRAD_ISA=level)


def instruction_sets() -> bool:
    """The kernels of every instruction set, from a build of all of them: the one in place has this machine's alone."""
    python, install = with_all_levels("levels", ["Pillow"])
    if not step("a build of every instruction set", install):
        return False
    best = subprocess.check_output(
        [python, "-c", "from onnxgrad import _native; print(_native.instruction_set())"], text=True
    ).strip()
    names = (
        "test_every_case",
        "test_golden",
        "test_large",
        "softmax/test_sums",
        "norm/test_exact_zeros",
    )
    tests = [f"tests/kernels/{name}.py" for name in names]
    run = [python, "-m", "pytest", "-n", "2", *tests]
    of_this_processor = LEVELS[: LEVELS.index(best) + 1]
    return all(step(f"kernels compiled for {v}", run, ONNXGRAD_ISA=v) for v in of_this_processor)


def with_all_levels(name: str, packages: list[str]) -> tuple[Path, list]:
    """An environment of its own, and the command that installs onnxgrad with every instruction set there."""
    common = ["numpy", "onnx", "onnx-ir", "onnxruntime", "rich", "safetensors", "flatbuffers", "pyyaml",
              "pytest", "pytest-xdist", "hypothesis"]  # fmt: skip
    python = environment(name, sys.executable, [*common, *packages])
    pip = [python, "-m", "pip", "install", "-qq", "--no-deps", "--disable-pip-version-check"]
    return python, [*pip, "--force-reinstall", *ALL_LEVELS, ROOT]


def properties() -> bool:
    command = [sys.executable, "-m", "pytest", "-n", "2", "-m", "not live", "-k", "property"]
    return step("property tests, 2,000 examples each", command, ONNXGRAD_EXAMPLES="2000")


def live() -> bool:
    """PyTorch, a notebook, a browser, datasets and trackers; what is not there is skipped with its reason."""
    peers = ["torch==2.13.0", "onnxscript", "transformers", "peft", "Pillow", "scikit-learn", "nbclient", "ipykernel",
             "datasets", "mlflow-skinny", "wandb", "trackio", "tensorboardX"]  # fmt: skip
    python, install = with_all_levels("live", peers)
    return step(
        "PyTorch in the same process", install, [python, "-m", "pytest", "-n", "2", "-m", "live"]
    )


def training() -> bool:
    """Twenty kills at random moments, and 10,000 steps in constant memory."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "-m", "not live", "tests/train"]
    variables = {"ONNXGRAD_KILLS": "20", "ONNXGRAD_STEPS": "10000"}
    return step("20 kills and 10,000 training steps", command, **variables)


def processes() -> bool:
    """mpiexec with 1, 2 and 4 processes: the same bytes, also after one was killed, at ten moments."""
    python, install = with_all_levels("mpi", ["mpi4py>=4.1", "mpich", "pyarrow"])
    command = [python, "-m", "pytest", "-n", "0", "-m", "not live", "tests/train/parallel"]
    return step("processes that train together", install, command, ONNXGRAD_KILLS="10")


def federated() -> bool:
    """A Flower run on the loopback address, by FedProx and with secure aggregation."""
    python, install = with_all_levels("flower", ["flwr>=1.26", "cryptography"])
    command = [python, "-m", "pytest", "-n", "0", "-m", "live", "tests/live/test_flower.py"]
    return step("federated learning", install, command)


def devices() -> bool:
    """The programs of `onnxgrad step --emit` in Node.js and in a headless browser; C and C++ under the sanitizers."""
    folder = ROOT / ".envs" / "node"
    folder.mkdir(parents=True, exist_ok=True)
    packages = ["onnxruntime-node", "onnxruntime-web"]
    install = ["npm", "install", "--silent", "--ignore-scripts", "--prefix", folder, *packages]
    tests = [sys.executable, "-m", "pytest", "-n", "0", "-rs", "tests/stepfile"]
    compare = [sys.executable, ROOT / "tools" / "check_steps.py"]
    return step("step files on devices", install, tests, compare, ONNXGRAD_KILLS="1",
                ONNXGRAD_NODE_MODULES=str(folder / "node_modules"))  # fmt: skip


def sweeps() -> bool:
    """A training stopped at 250 moments: kill -9, Ctrl-C, SIGTERM, less and less memory."""
    return step("250 stopped trainings", [sys.executable, ROOT / "tools" / "sweeps.py"])


def fuzzers(minutes: float) -> bool:
    """Contracts, kernels and one-node models under AddressSanitizer and UBSan, threads under ThreadSanitizer."""
    if not shutil.which("clang++"):
        print("✗ fuzzers: clang++ was not found (on Debian: apt install clang)")
        return False
    configure = ["cmake", "-S", ROOT, "-B", FUZZ, "-DCMAKE_CXX_COMPILER=clang++", "-DONNXGRAD_FUZZ=ON",
                 "-DONNXGRAD_PYTHON=OFF", "-DONNXGRAD_LEVELS=baseline"]  # fmt: skip
    seconds = int(60 * minutes)
    new = {harness: FUZZ / "corpus" / harness for harness in ("contracts", "kernels")}
    for folder in new.values():
        folder.mkdir(parents=True, exist_ok=True)
    options = [f"-max_total_time={seconds}", "-timeout=25", "-rss_limit_mb=3000", "-malloc_limit_mb=60000",
               "-max_len=512", "-len_control=0", "-seed=1", f"-artifact_prefix={FUZZ}/"]  # fmt: skip
    seeds = FUZZ / "seeds"  # of the kernels
    shutil.unpack_archive(ROOT / "fuzz" / "corpus" / "fuzz_kernels_seed_corpus.zip", seeds)
    sessions = [sys.executable, ROOT / "fuzz" / "fuzz_sessions.py", "--library", FUZZ / "libonnxgrad_ops.so",
                "--models", "1000000", "--seconds", seconds]  # fmt: skip
    built = step("fuzzers built", configure, ["cmake", "--build", FUZZ, "-j", "2"])
    return built and all(
        [
            step("contracts fuzzed", [FUZZ / "fuzz_contracts", *options, new["contracts"]]),
            step("kernels fuzzed", [FUZZ / "fuzz_kernels", *options, new["kernels"], seeds]),
            step("one-node models in onnxruntime fuzzed", sessions),
            step("threads under ThreadSanitizer", [FUZZ / "fuzz_threads", int(500 * minutes)]),
        ]
    )


def file_fuzzers(minutes: float) -> bool:
    """Changed models, datasets, checkpoints and adapters, hundreds to thousands a minute; and every attack."""
    run = [sys.executable, ROOT / "fuzz" / "files" / "run.py"]
    rates = {"models": 500, "data": 3000, "checkpoints": 2000, "adapters": 1000}
    passed = [
        step(f"{kind} fuzzed", [*run, kind, "--count", int(rate * minutes)])
        for kind, rate in rates.items()
    ]
    attacks = [sys.executable, ROOT / "attacks" / "run.py", "--fresh"]
    return all([*passed, step("attacks, each in a new process", attacks)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checks", nargs="*", help="which of them; all when none is named")
    parser.add_argument("--minutes", type=float, default=1, help="how long each fuzzer runs")
    arguments = parser.parse_args()
    checks = {
        "sanitizers": sanitizers,
        "instruction_sets": instruction_sets,
        "properties": properties,
        "live": live,
        "training": training,
        "processes": processes,
        "devices": devices,
        "federated": federated,
        "sweeps": sweeps,
        "fuzz": lambda: fuzzers(arguments.minutes),
        "files": lambda: file_fuzzers(arguments.minutes),
    }
    unknown = set(arguments.checks) - set(checks)
    if unknown:
        parser.error(f"no check is called {sorted(unknown)}, expected {', '.join(checks)}")
    chosen = arguments.checks or list(checks)
    results = [checks[name]() for name in chosen]  # all of them, also after a failure
    raise SystemExit(not all(results))


if __name__ == "__main__":
    main()
