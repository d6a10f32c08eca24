"""Run every case of every operator in the NumPy host, judge it, and write what bits came out: part of `make arm`.

`python tools/case_bits.py bits.json` needs no pytest, so that it is bearable on an emulated processor. The file says
for every case whether it kept its bound, and has digests of its inputs and outputs, to compare two machines.
`--only LSTMGrad` takes the operators whose names begin so.

The float64 references take most of the time, so another machine can judge: `--keep folder` writes the outputs there
and judges nothing; then `--judge folder`, elsewhere, judges those whose inputs are the same there. The names of the
others go to folder/unjudged.json, which `--names` takes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import numpy as np
from cases import cases_of
from cases.case import DTYPES, Case

from onnxgrad import _native
from onnxgrad.contracts import contracts


def digest(arrays: dict[str, np.ndarray]) -> str:
    """Of the bits, but every NaN is the same: which operand gives its sign is left to the compiler."""
    total = hashlib.sha256()
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
        total.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return total.hexdigest()[:16]


def verdict(case: Case, dtype, got: dict[str, np.ndarray]) -> str:
    """What is wrong; nothing where every output keeps its bound."""
    try:
        case.assert_close(got, dtype)
    except AssertionError as error:
        return str(error)
    return ""


def file_of(folder: Path, name: str) -> Path:
    return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.npz"


def done(case: Case, dtype, name: str, options: argparse.Namespace) -> dict[str, str] | None:
    """Digests and a verdict; None where there are no outputs to judge, or they belong to other inputs."""
    inputs = digest(case.inputs(dtype))
    if options.judge:
        if not file_of(options.judge, name).exists():
            return None
        with np.load(file_of(options.judge, name)) as kept:
            got = {key: kept[key] for key in kept.files}
        if str(got.pop("inputs of the case")) != inputs:
            return None
    else:
        got = case.run_numpy(dtype)
    if options.keep:
        np.savez(file_of(options.keep, name), **got, **{"inputs of the case": inputs})
    wrong = "" if options.keep else verdict(case, dtype, got)
    return {"in": inputs, "out": digest(got), "wrong": wrong}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--names", type=Path, help="a file with the names of the cases to run")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--judge", type=Path)
    options = parser.parse_args()
    names = json.loads(options.names.read_text()) if options.names else None
    results, others, started = {}, [], time.process_time()
    for contract in contracts().values():
        if not contract.name.startswith(options.only):
            continue
        for case in cases_of(contract):
            for dtype in DTYPES:
                name = f"{case} [{np.dtype(dtype).name}]"
                if names is not None and name not in names:
                    continue
                found = done(case, dtype, name, options)
                others += [] if found else [name]
                results.update({name: found} if found else {})
        options.file.write_text(json.dumps(results, indent=0))
    if options.judge:
        (options.judge / "unjudged.json").write_text(json.dumps(others))
    wrong = {name: r["wrong"] for name, r in results.items() if r["wrong"]}
    print("".join(f"{text}\n" for text in wrong.values()), end="")
    what = "run" if options.keep else "within their bounds"
    rest = f" ({len(others)} have other inputs here)" if others else ""
    where = "judged on " if options.judge else ""
    print(
        f"{len(results) - len(wrong)} of {len(results)} cases {what}{rest}, {where}{platform.machine()} "
        f"{_native.instruction_set()}, {time.process_time() - started:.0f} s of processor time",
        flush=True,
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
