"""`mpiexec -n 4 onnxgrad train …`: real processes, killed and resumed. ONNXGRAD_KILLS says how often they are killed.

Skipped where mpi4py and mpiexec are not installed: pip install mpi4py mpich.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from train.parallel.networks import network

beside = Path(sys.executable).with_name("mpiexec")
MPIEXEC = str(beside) if beside.exists() else shutil.which("mpiexec")
pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("mpi4py") is None, reason="mpi4py is missing: pip install mpi4py"
    ),
    pytest.mark.skipif(MPIEXEC is None, reason="mpiexec is missing: pip install mpich"),
    pytest.mark.xdist_group("mpi"),  # one after the other: they take all cores
]
KILLS = int(os.environ.get("ONNXGRAD_KILLS", "0"))
SIZES = (1, 2, 4) if KILLS else (1, 2)
NETWORKS = ("mlp", "cnn", "lstm") if KILLS else ("cnn",)
ENDS = 5.0  # seconds in which a job ends after one of its processes
ONNXGRAD = [sys.executable, "-m", "onnxgrad"]
MOST = 180.0


def mpiexec(size: int, *command: str) -> list[str]:
    return [MPIEXEC, "-n", str(size), *command]


def prepare(folder: Path, name: str) -> None:
    model, x, y = network(name)
    onnx.save(model, folder / "m.onnx")
    np.savez(folder / "d.npz", x=x, target=y)


def training(size: int, run: str, epochs: int, *more: str) -> list[str]:
    return mpiexec(
        size, *ONNXGRAD, "train", "m.onnx", "--data", "d.npz", "--epochs", str(epochs), "--batch-size", "16",
        "--run-dir", run, "-o", f"{run}.onnx", "--save-every", "0.2", *more,
    )  # fmt: skip


def run(folder: Path, command: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=MOST, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_any_number_of_processes_writes_the_same_bytes(name, tmp_path):
    prepare(tmp_path, name)
    written = {}
    for size in SIZES:
        done = run(tmp_path, training(size, f"run{size}", 2))
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("epoch 1/2") == 1, "one process speaks"
        written[size] = (tmp_path / f"run{size}.onnx").read_bytes()
    assert len(set(written.values())) == 1, sorted(written)


def ranks(folder: Path) -> list[int]:
    """The processes that run onnxgrad in a folder; mpiexec and its helpers are others."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            here = (entry / "cwd").resolve() == folder
        except OSError:
            continue  # it has ended meanwhile
        if here and words[1:4] == [b"-m", b"onnxgrad", b"train"]:
            found.append(int(entry.name))
    return sorted(found)


@pytest.mark.skipif(
    not KILLS, reason="takes half a minute a kill: make check does it, with ONNXGRAD_KILLS=10"
)
@pytest.mark.parametrize("moment", range(KILLS))
def test_a_killed_process_ends_the_job_which_another_number_resumes(moment, tmp_path):
    if sys.platform != "linux":
        pytest.skip("looks for processes in /proc")
    prepare(tmp_path, "mlp")
    epochs = 60
    process = subprocess.Popen(
        training(4, "run", epochs), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    begun = time.monotonic()
    while not (tmp_path / "run" / "args.json").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() - begun < MOST
        time.sleep(0.05)
    time.sleep(0.12 * moment)  # the job takes some two seconds where nothing else runs
    victims = ranks(tmp_path.resolve())
    assert victims, "no process of the job was found"
    os.kill(victims[moment % len(victims)], signal.SIGKILL)
    killed = time.monotonic()
    _, errors = process.communicate(timeout=MOST)
    assert time.monotonic() - killed <= ENDS, errors
    assert process.returncode != 0
    assert "Traceback" not in errors
    again = run(tmp_path, mpiexec(2, *ONNXGRAD, "train", "--resume", "run"))
    assert again.returncode == 0, again.stderr
    whole = run(tmp_path, training(1, "whole", epochs))
    assert whole.returncode == 0, whole.stderr
    assert (tmp_path / "run.onnx").read_bytes() == (tmp_path / "whole.onnx").read_bytes()


SCRIPT = """
    import sys
    import time
    import numpy as np
    from mpi4py import MPI
    import onnxgrad
    from onnxgrad.train.callbacks import Callback

    class Failing(Callback):
        def on_step_end(self, loop, logs):
            if MPI.COMM_WORLD.rank == 1 and loop.trainer.steps == 3:
                print(time.time(), flush=True)
                raise RuntimeError("no more memory in this machine")

    data = np.load("d.npz")
    trainer = onnxgrad.Trainer("m.onnx", loss="cross_entropy", communicator=MPI.COMM_WORLD)
    inside = sys.argv[1] == "inside"
    trainer.fit(data["x"], data["target"], epochs=3, batch_size=16, callbacks=[Failing()] if inside else [])
    if MPI.COMM_WORLD.rank == 1:
        print(time.time(), flush=True)
        raise RuntimeError("after the training")
    trainer.evaluate(data["x"], data["target"])
    """


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_an_exception_in_one_process_of_a_script_ends_all(where, tmp_path):
    """Inside of `fit` the others hear of it; outside the job is ended."""
    prepare(tmp_path, "mlp")
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    done = run(tmp_path, mpiexec(2, sys.executable, "script.py", where))
    ended = time.time()
    assert ended - float(done.stdout.split()[-1]) <= ENDS
    assert done.returncode != 0
    said = "no more memory in this machine" if where == "inside" else "after the training"
    assert said in done.stderr


def test_a_wrong_call_is_said_once(tmp_path):
    prepare(tmp_path, "mlp")
    done = run(
        tmp_path, mpiexec(2, *ONNXGRAD, "train", "m.onnx", "--data", "missing.npz", "-o", "t.onnx")
    )
    assert done.returncode != 0
    assert done.stderr.count("onnxgrad: ") == 1, done.stderr
    assert "missing.npz" in done.stderr


def test_a_bad_row_of_one_process_is_said_once(tmp_path):
    """Only one of them reads it; the job ends by itself."""
    prepare(tmp_path, "mlp")
    data = dict(np.load(tmp_path / "d.npz"))
    data["x"][40] = np.nan
    np.savez(tmp_path / "d.npz", **data)
    done = run(tmp_path, training(2, "run", 1))
    assert done.returncode != 0
    assert done.stderr.count("onnxgrad: ") == 1, done.stderr
    assert "holds NaN in row 40" in done.stderr
    assert not (tmp_path / "run").exists()


def test_rounded_training_writes_the_same_bytes_too(tmp_path):
    """Ranges come from the first rows, and learned scales travel with the gradients."""
    prepare(tmp_path, "cnn")
    written = set()
    for size in SIZES:
        done = run(tmp_path, training(size, f"run{size}", 2, "--quantize", "int8"))
        assert done.returncode == 0, done.stderr
        written.add((tmp_path / f"run{size}.onnx").read_bytes())
    assert len(written) == 1
    types = {n.op_type for n in onnx.load(tmp_path / "run1.onnx").graph.node}
    assert "QuantizeLinear" in types or "QLinearConv" in types
