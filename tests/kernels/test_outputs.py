"""Every operator, every choice of its outputs, in both hosts: the same bits as the call that asks for all of them.

Results are written into arrays that are filled beforehand, once with one pattern and once with another: an element that
a kernel leaves unwritten shows as a difference.
"""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime
import pytest
from cases import cases_of
from cases.case import Case
from ort_models import node_model

import onnxgrad
from onnxgrad import kernels
from onnxgrad.contracts import Contract, contracts

PATTERNS = (0xFF, 0x5A)  # as floats: NaN, and about 1.5e16
CASES_PER_OPERATOR = 3
operators = pytest.mark.parametrize("contract", contracts().values(), ids=lambda c: c.name)


def chosen_cases(contract: Contract, count: int) -> list[Case]:
    """The first ones of the table that ask for most outputs: ordinary ones stand first."""
    return sorted(cases_of(contract), key=lambda case: -len(case.wanted()))[:count]


def subsets(case: Case) -> list[tuple[str, ...]]:
    """Every choice of at least one of the outputs that the case has, in the contract's order."""
    sizes = range(1, len(case.wanted()) + 1)
    return [c for size in sizes for c in itertools.combinations(case.wanted(), size)]


def patterned(like: dict[str, np.ndarray], names, byte: int) -> dict[str, np.ndarray]:
    """New arrays of the same shapes and types, every byte of them `byte`."""
    return {
        name: np.frombuffer(bytes([byte]) * like[name].nbytes, like[name].dtype)
        .reshape(like[name].shape)
        .copy()
        for name in names
    }


def call(case: Case, dtype, **choice) -> dict[str, np.ndarray]:
    result = getattr(kernels, case.contract.python_name)(
        **case.inputs(dtype), **case.attributes, **choice
    )
    names = [t.name for t in case.contract.outputs]
    return dict(zip(names, result if len(names) > 1 else (result,), strict=True))


@operators
def test_every_choice_of_outputs_gives_the_same_bits(contract):
    for case, dtype in itertools.product(
        chosen_cases(contract, CASES_PER_OPERATOR), (np.float32, np.float64)
    ):
        whole = call(case, dtype, outputs=case.wanted())
        for wanted, byte in itertools.product(subsets(case), PATTERNS):
            got = call(case, dtype, outputs=wanted, out=patterned(whole, wanted, byte))
            for name, expected in whole.items():
                told = f"{case}, {np.dtype(dtype)}, outputs={wanted}: {name}"
                if name not in wanted:
                    assert got[name] is None, told
                else:
                    assert got[name].tobytes() == expected.tobytes(), told


@operators
def test_a_node_with_absent_outputs_gives_the_same_bits(contract):
    required = {t.name for t in contract.outputs if not t.optional}
    case = chosen_cases(contract, 1)[0]
    whole = call(case, np.float32, outputs=case.wanted())
    inputs = case.inputs(np.float32)
    for wanted in subsets(case):
        model = node_model(contract, inputs, case.attributes, wanted)
        if not required <= set(wanted):  # the runtime itself asks for these
            with pytest.raises(Exception, match=r"output|not in range"):
                onnxgrad.session(model, threads=1)
            continue
        session = onnxgrad.session(model, threads=1)
        for byte in PATTERNS:
            binding, arrays = session.io_binding(), patterned(whole, wanted, byte)
            lent = {n: onnxruntime.OrtValue.ortvalue_from_numpy(a) for n, a in arrays.items()}
            for name, array in inputs.items():
                binding.bind_cpu_input(name, array)
            for name, value in lent.items():
                binding.bind_ortvalue_output(name, value)
            session.run_with_iobinding(binding)
            for name, value in lent.items():
                told = f"{case}, outputs {wanted}: {name}"
                assert value.numpy().tobytes() == whole[name].tobytes(), told


@operators
def test_no_outputs_at_all_are_refused(contract):
    case = chosen_cases(contract, 1)[0]
    names = ", ".join(t.name for t in contract.outputs)
    expected = f"{contract.name}: outputs asks for nothing, expected at least one of {names}"
    with pytest.raises(onnxgrad.ContractError) as refusal:
        call(case, np.float32, outputs=())
    assert str(refusal.value) == expected


@pytest.mark.parametrize("name", [c.name for c in contracts().values() if len(c.outputs) > 1])
def test_a_node_without_outputs_is_refused(name):
    case = chosen_cases(contracts()[name], 1)[0]
    inputs = case.inputs(np.float32)
    model = node_model(case.contract, inputs, case.attributes, [case.contract.outputs[0].name])
    del model.graph.node[0].output[:]
    del model.graph.output[:]
    with pytest.raises(Exception, match="output"):
        onnxgrad.session(model, threads=1).run(None, inputs)
