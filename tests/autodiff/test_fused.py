"""Every kernel that a rule uses gives what the standard operators give."""

import pytest
from autodiff import test_rules_conv as conv
from autodiff import test_rules_loss as loss
from autodiff import test_rules_normalization as normalization
from autodiff import test_rules_resize as resize
from autodiff import test_rules_shape as shape
from autodiff.harness import Case, agree, build

from onnxgrad.autodiff import vjp
from onnxgrad.autodiff.rule import FUSED

CASES = [
    case
    for module in (conv, loss, normalization, resize, shape)
    for table in vars(module).values()
    if isinstance(table, list)
    for case in table
    if isinstance(case, Case) and (case.domain, case.op) in FUSED
    if case.op not in ("Conv", "LSTM", "GRU", "LogSoftmax")  # judged beside their own tables
]
# The kernel does not do these: the standard rule takes them.
_LEFT = ("column major", "log_prob used, too", "all three outputs", "a scale per row")
LEFT = [case for case in CASES if case.what in _LEFT]
CASES = [case for case in CASES if case.what not in _LEFT]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_standard_operators(case):
    agree(case, case.opsets[-1])


def test_forms_that_no_kernel_has_are_left_to_standard_operators():
    for case in LEFT:
        model, _, wrt = build(case, case.opsets[-1], "static")
        nodes = vjp(model, wrt=wrt, ops="fused").graph.node
        assert not any(n.domain for n in nodes), str(case)
