"""Stop a training at many moments, in every way that machines and people do, and see that nothing is lost.

    python tools/sweeps.py                        all of them, as `make check` does
    python tools/sweeps.py kill --count 100       kill -9
    python tools/sweeps.py interrupt --count 50   Ctrl-C from the first moment to the end
    python tools/sweeps.py terminate --count 50   SIGTERM, likewise
    python tools/sweeps.py memory --count 50      less and less memory (RLIMIT_AS)

A trial trains a small model over an older file. Afterwards the model and the data are as they were, what stands at
`-o` is the older file or the whole result, no temporary file is left beside it, stderr has no traceback, and a run that
had begun is resumed to the same bytes as one that nobody stopped. Moments are equally spaced over the time of the
processor that an undisturbed run takes, so that a sweep repeats, also on a machine that is busy with other things.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

COMMAND = [sys.executable, "-m", "onnxgrad", "train"]
SETTINGS = ["m.onnx", "--data", "d.npz", "--loss", "mse", "--epochs", "25", "--batch-size", "16", "--val", "0.2",
            "--run-dir", "run", "-o", "out.onnx", "--threads", "1"]  # fmt: skip
OLD = b"an older file"
SIGNALS = {"kill": signal.SIGKILL, "interrupt": signal.SIGINT, "terminate": signal.SIGTERM}
MOST = 600  # seconds on the clock: a busy machine is no finding


TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Ended:
    """`seconds` are those of the processor."""

    code: int
    text: str
    seconds: float


def prepare(folder: Path) -> None:
    """Write the model, the data and the file that the result replaces."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 3] x) => (float[N, 1] y) { h = MatMul(x, w) a = Tanh(h) y = MatMul(a, v) }""")
    rng = np.random.default_rng(0)
    for name, shape in (("w", (3, 16)), ("v", (16, 1))):
        array = rng.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    x = rng.standard_normal((256, 3)).astype(np.float32)
    np.savez(folder / "d.npz", x=x, y=x.sum(1, keepdims=True))
    (folder / "out.onnx").write_bytes(OLD)


def train(folder: Path, *settings: str, stop: Callable[[subprocess.Popen], None] | None = None,
          limit: int | None = None) -> Ended:  # fmt: skip
    """Start a training, let `stop` do what it does, and wait for the end."""

    def before() -> None:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    started = ended_children()
    process = subprocess.Popen(
        [*COMMAND, *settings], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=before,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    if stop is not None:
        stop(process)
    try:
        text = process.communicate(timeout=MOST)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        process.kill()
        return Ended(-1, f"still ran after {MOST} s", MOST)
    return Ended(process.returncode, text, ended_children() - started)


def ended_children() -> float:
    """Seconds of the processor that children took which have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def used_by(process: int) -> float:
    """Seconds of the processor that a process took so far, and the children that it waits for."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:  # it has ended
        return 0.0
    own = sum(int(ticks) for ticks in fields[11:15]) / TICKS
    return own + sum(used_by(int(child)) for child in children)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# ---- a trial


class Sweep:
    """The undisturbed run, and what a disturbed one is compared with."""

    def __init__(self, folder: Path):
        self.folder = folder
        whole = self.box("whole")
        self.files = {name: digest(whole / name) for name in ("m.onnx", "d.npz")}
        ended = train(whole, *SETTINGS)
        if ended.code != 0:
            raise SystemExit(f"the undisturbed run failed: {ended.text}")
        self.seconds, self.result = ended.seconds, digest(whole / "out.onnx")

    def box(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        prepare(folder)
        return folder

    def trial(self, way: str, number: int, count: int) -> tuple[str, list[str]]:
        """Return what the trial came to, and what is wrong with it."""
        box = self.box(f"{way}-{number}")
        if way == "memory":
            ended = train(box, *SETTINGS, limit=memory_of(number, count))
        else:
            at = self.seconds * (number + 0.5) / count

            def stop(process: subprocess.Popen) -> None:
                while used_by(process.pid) < at and process.poll() is None:
                    time.sleep(0.002)
                process.send_signal(SIGNALS[way])

            ended = train(box, *SETTINGS, stop=stop)
        wrong = self.judge(box, way, ended)
        kind = f"exit {ended.code}"
        if not wrong and ended.code != 0 and (box / "run" / "args.yaml").exists():
            kind, more = self.resumed(box, kind)
            wrong += more
        return kind, wrong

    def judge(self, box: Path, way: str, ended: Ended) -> list[str]:
        wrong = [
            f"{name} was changed" for name, was in self.files.items() if digest(box / name) != was
        ]
        out = box / "out.onnx"
        whole = out.exists() and digest(out) == self.result
        if not whole and (not out.exists() or out.read_bytes() != OLD):
            wrong.append("out.onnx is neither the older file nor the result")
        if ended.code == 0 and not whole:
            wrong.append("it ended well without the result")
        # Python's own start shows one where Ctrl-C meets it before a line of ours.
        if "Traceback" in ended.text and re.search(r"(src|site-packages)/onnxgrad/", ended.text):
            wrong.append("a traceback")
        # A signal that comes before Python has run a line of ours ends it as it ends any program.
        unborn = way in SIGNALS and ended.code == -SIGNALS[way] and not (box / "run").exists()
        if way != "kill" and not unborn:  # it had time to say a word, and to clear up
            if ended.code != 0 and not ended.text.strip():
                wrong.append("it ended without a word")
            # Of -m, Python ends itself by SIGINT where one passed through an exec of text, though it was answered;
            # a shell sees 130 either way.
            answered = ended.code == -signal.SIGINT and "interrupted" in ended.text
            if (ended.code < 0 and not answered) or ended.code == 70:
                wrong.append(f"it ended with {ended.code}")
            left = {p.name for p in box.iterdir()} - {"m.onnx", "d.npz", "out.onnx", "run"}
            wrong += [f"{name} was left" for name in sorted(left)]
        return [f"{w}: {ended.text.strip()[-600:]}" for w in wrong]

    def resumed(self, box: Path, kind: str) -> tuple[str, list[str]]:
        """Continue the run; one without a checkpoint says so, and is begun again."""
        again = train(box, "--resume", "run")
        if again.code != 0:
            if "Traceback" in again.text or "checkpoint" not in again.text:
                return kind, [f"--resume ended with {again.code}: {again.text.strip()[-600:]}"]
            kind += ", begun again"
            again = train(box, *SETTINGS)
        else:
            kind += ", resumed"
        if again.code != 0 or digest(box / "out.onnx") != self.result:
            return kind, [
                f"continued, it ended with {again.code} and another result: {again.text[-600:]}"
            ]
        return kind, []


def memory_of(number: int, count: int) -> int:
    """From what Python alone needs to what is more than enough, in equal factors."""
    least, most = 64 << 20, 3 << 30
    return round(least * (most / least) ** (number / max(1, count - 1)))


WAYS = {"kill": 100, "interrupt": 50, "terminate": 50, "memory": 50}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ways", nargs="*", metavar="WAY", help=", ".join(WAYS))
    parser.add_argument("--count", type=int, help="moments or steps of each")
    parser.add_argument("--begin", type=int, default=0)
    options = parser.parse_args()
    unknown = set(options.ways) - set(WAYS)
    if unknown:
        parser.error(f"no sweep is called {sorted(unknown)}, expected {', '.join(WAYS)}")
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        sweep = Sweep(Path(folder))
        print(f"an undisturbed run takes {sweep.seconds:.1f} s of the processor", flush=True)
        for way in options.ways or WAYS:
            count, kinds = options.count or WAYS[way], Counter()
            for number in range(options.begin, count):
                kind, wrong = sweep.trial(way, number, count)
                kinds[kind] += 1
                bad += bool(wrong)
                for what in wrong:
                    print(f"✗ {way} {number} of {count}: {what}", flush=True)
            listed = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
            print(f"{way}: {sum(kinds.values())} trials: {listed}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
