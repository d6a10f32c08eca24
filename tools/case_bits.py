"""Run every case of every operator in the NumPy host, judge it, and write what bits came out: part of `make arm`.

`python tools/case_bits.py bits.json` needs no pytest, so that it is bearable on an emulated processor. The file says
for every case whether it kept its bound, and has digests of its inputs and outputs, to compare two machines.
`--only LSTMGrad` takes the operators whose names begin so.
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


def judged(case: Case, dtype) -> dict[str, str]:
    got = case.run_numpy(dtype)
    try:
        case.assert_close(got, dtype)
        verdict = ""
    except AssertionError as error:
        verdict = str(error)
    return {"in": digest(case.inputs(dtype)), "out": digest(got), "wrong": verdict}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    results, started = {}, time.process_time()
    for contract in contracts().values():
        if not contract.name.startswith(options.only):
            continue
        for case in cases_of(contract):
            for dtype in DTYPES:
                results[f"{case} [{np.dtype(dtype).name}]"] = judged(case, dtype)
        options.file.write_text(json.dumps(results, indent=0))
    wrong = {name: r["wrong"] for name, r in results.items() if r["wrong"]}
    print("\n".join(wrong.values()))
    print(
        f"{len(results) - len(wrong)} of {len(results)} cases within their bounds, {platform.machine()} "
        f"{_native.instruction_set()}, {time.process_time() - started:.0f} s of processor time"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
