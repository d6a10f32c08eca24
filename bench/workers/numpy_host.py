"""onnxgrad.kernels on NumPy arrays, into preallocated results."""

import json
from pathlib import Path

from protocol import aligned, load_inputs, serve

from onnxgrad import kernels
from onnxgrad.contracts import contracts


def prepare(folder, threads):
    line = json.loads(Path(folder, "line.json").read_text())
    inputs = load_inputs(folder)
    contract = contracts()[line["op"]]
    kernel = getattr(kernels, contract.python_name)
    kernels.set_num_threads(threads)
    arguments = [inputs.get(t.name) for t in contract.inputs]
    attributes, wanted = line["attributes"], tuple(line["outputs"])
    first = kernel(*arguments, **attributes, outputs=wanted)
    results = (
        dict(zip([t.name for t in contract.outputs], first, strict=True))
        if isinstance(first, tuple)
        else {wanted[0]: first}
    )
    results = {name: aligned(results[name]) for name in wanted}
    small = all(a.size <= 64 for a in inputs.values())  # small calls allocate, as a user's would
    out = {} if small else {"out": results if len(contract.outputs) > 1 else results[wanted[0]]}

    def call():
        kernel(*arguments, **attributes, outputs=wanted, **out)

    if len(wanted) == len(contract.outputs):

        def call():
            kernel(*arguments, **attributes, **out)

    return call, lambda: results


serve(prepare)
