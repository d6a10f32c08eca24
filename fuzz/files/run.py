"""Mutated models, data files, checkpoints and adapters through onnxgrad, without atheris.

    python fuzz/files/run.py models --count 20000 --seed 1
    python fuzz/files/run.py data --count 10000 --seed 1
    python fuzz/files/run.py checkpoints --count 5000 --seed 1
    python fuzz/files/run.py adapters --count 5000 --seed 1

Input n of a seed is always the same. They run in forked children; one that ends by a signal, takes more than 10 s of
the processor, or raises an error that is not one of ours is a finding. Exit code 1 when there is one.
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
import os
import random
import resource
import struct
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import adapters
import mutate
import seeds
import targets

SECONDS = 10  # of the processor, for one input
MEMORY = 6 << 30
BATCH = 200


def make(kind: str, seed: int, number: int):
    """Input `number`: what to call, and with what."""
    rng = random.Random(f"{kind} {seed} {number}")
    if kind == "models":
        chosen = rng.choice(STARTS["models"])
        proto = type(chosen)()
        proto.CopyFrom(chosen)
        if rng.random() < 0.05:
            return targets.model, (mutate.mutate_bytes(proto.SerializeToString(), rng),)
        mutate.mutate_message(proto, rng)
        return targets.model, (proto.SerializeToString(),)
    if kind == "data":
        ending, content = rng.choice(STARTS["data"])
        return targets.dataset, (mutate.mutate_bytes(content, rng), ending)
    if kind == "adapters":
        form, files = rng.choice(STARTS["adapters"])
        return adapters.taken, (form, adapters.changed(files, rng))
    files = dict(STARTS["checkpoints"])
    name = rng.choice(list(files))
    change = mutate.mutate_bytes
    if name.endswith(".json") and rng.random() < 0.7:
        change = mutate.mutate_json
    files[name] = change(files[name], rng)
    if rng.random() < 0.5:
        files = targets.rehashed(files)
    return targets.checkpoint, (files,)


STARTS: dict = {}


def prepare(kind: str) -> None:
    if kind == "models":
        STARTS[kind] = seeds.models()
    elif kind == "data":
        found = list(seeds.datasets(Path()).items())
        STARTS[kind] = [*found, ("png", seeds.picture())]
    elif kind == "adapters":
        STARTS[kind] = adapters.starts()
    else:
        STARTS[kind] = targets.checkpoint_files()


def child(kind: str, seed: int, begin: int, end: int, board: mmap.mmap, output: int) -> None:
    """Run inputs, noting on the board which one is at work."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    with os.fdopen(output, "w") as out:
        for number in range(begin, end):
            board[:8] = struct.pack("<q", number)
            used = resource.getrusage(resource.RUSAGE_SELF)
            spent = int(used.ru_utime + used.ru_stime) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (spent + SECONDS, hard))  # SIGXCPU ends it
            try:
                action, arguments = make(kind, seed, number)
                out.write(f"{number}\t{action(*arguments)}\n")
            except targets.Foreign as error:
                out.write(f"{number}\t!{str(error)[:500]!r}\n")
            except Exception as error:
                out.write(f"{number}\t!harness {type(error).__name__}: {str(error)[:300]!r}\n")
            out.flush()
    os._exit(0)


def run(kind: str, seed: int, begin: int, count: int) -> tuple[Counter, list[tuple[int, str]]]:
    """Run inputs in children; a child that dies is followed by one that goes on behind its input.

    Ctrl-C ends it with what was found so far.
    """
    prepare(kind)
    results, findings = Counter(), []
    with contextlib.suppress(KeyboardInterrupt):
        _run(kind, seed, begin, begin + count, results, findings)
    return results, findings


def _run(kind: str, seed: int, at: int, end: int, results: Counter, findings: list) -> None:
    board = mmap.mmap(-1, 8)
    while at < end:
        read, write = os.pipe()
        stop = min(at + BATCH, end)
        process = os.fork()
        if process == 0:
            try:
                os.close(read)
                child(kind, seed, at, stop, board, write)
            finally:  # it must not go on as its parent
                os._exit(1)
        os.close(write)
        with os.fdopen(read) as lines:
            for line in lines:
                number, _, text = line.rstrip("\n").partition("\t")
                if text.startswith("!"):
                    findings.append((int(number), text[1:]))
                    text = "finding"
                results[text] += 1
        _, status = os.waitpid(process, 0)
        code = os.waitstatus_to_exitcode(status)
        if code != 0:
            number = struct.unpack("<q", board[:8])[0]
            findings.append((number, f"ended with {code}"))
            results["finding"] += 1
            at = number + 1
        else:
            at = stop


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kind", choices=["models", "data", "checkpoints", "adapters"])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--begin", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", metavar="FOLDER", help="write the inputs of findings there")
    options = parser.parse_args()
    started = time.monotonic()
    results, findings = run(options.kind, options.seed, options.begin, options.count)
    for number, text in findings:
        print(f"✗ {options.kind} {number} of seed {options.seed}: {text}")
        if options.keep:
            keep(options, number)
    listed = ", ".join(f"{n:,} {what}" for what, n in results.most_common())
    print(
        f"{sum(results.values()):,} {options.kind} in {time.monotonic() - started:.0f} s: {listed}"
    )
    return 1 if findings else 0


def keep(options: argparse.Namespace, number: int) -> None:
    folder = Path(options.keep)
    folder.mkdir(parents=True, exist_ok=True)
    _, arguments = make(options.kind, options.seed, number)
    name = f"{options.kind}-{options.seed}-{number}"
    given = next((a for a in arguments if isinstance(a, (bytes, dict))), b"")
    files = given if isinstance(given, dict) else {"": given}
    for part, content in files.items():
        (folder / f"{name}{part}").write_bytes(content)


if __name__ == "__main__":
    sys.exit(main())
