"""A wrong call, on both hosts: the same text."""

from __future__ import annotations

import numpy as np
import pytest
from ort_models import node_model

import onnxgrad
from onnxgrad import kernels
from onnxgrad.contracts import contracts


def assert_both_hosts_refuse(name: str, inputs: dict, attributes: dict, text: str) -> None:
    contract = contracts()[name]
    with pytest.raises(onnxgrad.ContractError) as error:
        getattr(kernels, contract.python_name)(**inputs, **attributes)
    assert str(error.value) == text

    arrays = {k: np.asarray(v) for k, v in inputs.items()}
    wanted = [t.name for t in contract.outputs if not t.optional] or [contract.outputs[0].name]
    assert_runtime_refuses(node_model(contract, arrays, attributes, wanted), arrays, text)


def assert_runtime_refuses(model, arrays: dict, text: str) -> None:
    """When the node is created, where the attributes alone are wrong, or when it runs."""
    with pytest.raises(
        Exception, match=r"INVALID_ARGUMENT|Exception during initialization"
    ) as error:
        onnxgrad.session(model).run(None, arrays)
    created, ran = f"initialization: {text} (node 'node')", f"Name:'node' Status Message: {text}"
    assert str(error.value).endswith((created, ran))
