"""The cases of every operator: `cases/<op>.py` holds a table CASES, and `every_case()` collects them."""

from __future__ import annotations

import importlib
import importlib.util

from cases.case import Case
from onnxgrad.contracts import Contract, contracts


def cases_of(contract: Contract) -> list[Case]:
    """The table of one operator, each case bound to its contract."""
    module = importlib.import_module(f"cases.{contract.python_name}")
    return [case.of(contract) for case in module.CASES]


def missing() -> list[str]:
    """What an operator of `ops.inc` still lacks: its cases or its reference."""
    return [
        f"tests/{kind}/{c.python_name}.py"
        for c in contracts().values()
        for kind in ("cases", "reference")
        if importlib.util.find_spec(f"{kind}.{c.python_name}") is None
    ]


def every_case() -> list[Case]:
    """All cases of all operators; collection fails with the list of what is missing."""
    if missing():
        raise LookupError("not every operator has its tests: add " + ", ".join(missing()))
    return [case for contract in contracts().values() for case in cases_of(contract)]
