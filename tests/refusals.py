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
    session = onnxgrad.session(node_model(contract, arrays, attributes, wanted))
    with pytest.raises(Exception, match="INVALID_ARGUMENT") as error:
        session.run(None, arrays)
    assert str(error.value).endswith(f"Name:'node' Status Message: {text}")
