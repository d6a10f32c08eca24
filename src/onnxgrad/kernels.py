"""The gradient kernels as functions on NumPy arrays, one per operator of `onnxgrad ops`.

    >>> import numpy as np
    >>> from onnxgrad import kernels
    >>> kernels.relu_grad(np.float32([1, 2]), np.float32([-1, 1]))
    array([0., 2.], dtype=float32)

Inputs are positional or by name, None for an absent one; attributes are keywords. `outputs=("dX", "dW")` asks for
some outputs only, the others come back as None. `out=` takes a preallocated array, or a dict of them by output name.
Arrays are float32 or float64, the same for all; strided ones are copied. Wrong calls raise `ContractError`.
"""

from __future__ import annotations

import inspect
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager

from onnxgrad import _native
from onnxgrad.contracts import Contract, contracts


def get_num_threads() -> int:
    """How many threads the kernels use on NumPy arrays (sessions use their own)."""
    return _native.get_num_threads()


def set_num_threads(count: int) -> None:
    """Use `count` threads on NumPy arrays. Results have the same bits for every count.

    >>> set_num_threads(2)
    >>> get_num_threads()
    2
    """
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 1024:
        raise ValueError(f"set_num_threads: count is {count!r}, expected an integer from 1 to 1024")
    _native.set_num_threads(count)


@contextmanager
def at_most(threads: int | None) -> Iterator[None]:
    """Within it, what the calling thread computes uses at most `threads` threads; None for no limit.

    Other threads of the process, and what they set, are left alone.
    """
    before = _native.limit_threads(threads or 0)
    try:
        yield
    finally:
        _native.limit_threads(before)


def _signature(contract: Contract) -> inspect.Signature:
    kinds = inspect.Parameter
    names = [
        kinds(t.name, kinds.POSITIONAL_OR_KEYWORD, default=None if t.optional else kinds.empty)
        for t in contract.inputs
    ]
    # A required input behind an optional one would not be a legal Python signature.
    for i in range(len(names)):
        if any(later.default is kinds.empty for later in names[i:]):
            names[i] = names[i].replace(default=kinds.empty)
    keywords = [kinds(a.name, kinds.KEYWORD_ONLY, default=a.default) for a in contract.attributes]
    keywords += [kinds(name, kinds.KEYWORD_ONLY, default=None) for name in ("outputs", "out")]
    return inspect.Signature(names + keywords)


def _documentation(contract: Contract) -> str:
    lines = [contract.summary, "", f"    {contract.formula}", ""]
    for t in contract.inputs:
        lines.append(f"{t.name}: {t.spec}{', optional' if t.optional else ''}. {t.doc}.")
    for a in contract.attributes:
        lines.append(f"{a.name}: {a.kind}. {a.doc}.")
    for t in contract.outputs:
        lines.append(f"Returns {t.name}: {t.spec}. {t.doc}.")
    return "\n".join(lines)


def _publish() -> list[str]:
    """Put one callable per operator into this module."""
    names = []
    for kernel, contract in zip(_native.kernels(), contracts().values(), strict=True):
        kernel.__name__ = kernel.__qualname__ = contract.python_name
        kernel.__module__ = __name__
        kernel.__signature__ = _signature(contract)
        kernel.__doc__ = _documentation(contract)
        if len(contract.outputs) > 1:
            fields = [t.name for t in contract.outputs]
            kernel.set_result_type(namedtuple(f"{contract.name}Result", fields))
        globals()[contract.python_name] = kernel
        names.append(contract.python_name)
    return names


__all__ = ["at_most", "get_num_threads", "set_num_threads", *_publish()]
