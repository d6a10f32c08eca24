"""Lists that follow from the contracts: an operator that one of them forgets fails here, by name."""

import re
from pathlib import Path

import pytest
from golden.differences import EXTENSIONS

from onnxgrad.contracts import contracts

ROOT = Path(__file__).resolve().parents[1]
UPSTREAM = (ROOT / "tests" / "golden" / "upstream_schemas.json").read_text()
RULES = "".join(p.read_text() for p in (ROOT / "src/onnxgrad/autodiff").rglob("*.py"))

# Kernels for graphs that the old package made: our own gradients use newer ones.
FOR_OLD_GRAPHS = {
    "SoftmaxGrad": "the softmax of opset 1, which the loader raises to 13",
    "LogSoftmaxGrad": "as SoftmaxGrad",
    "InvertibleLayerNormalizationGrad": "a choice of the old memory planner",
    "SoftmaxCrossEntropyLossGrad": "our rule writes the Internal form, which takes ignore_index as an input",
    "FakeQuantGrad": "our rule writes LearnedFakeQuantGrad",
}


@pytest.mark.parametrize("name", contracts())
def test_an_operator_that_the_old_package_lacks_is_listed_as_an_extension(name):
    listed = {part for names in EXTENSIONS for part in names.split(", ")}
    assert f'"{name}"' in UPSTREAM or name in listed, (
        f"{name} is not in the old package: add it to EXTENSIONS in tests/golden/differences.py"
    )


@pytest.mark.parametrize("name", contracts())
def test_an_operator_is_written_by_a_rule_or_is_for_old_graphs(name):
    written = re.search(rf"""op\.{name}\(|["']{name}["']""", RULES)
    assert bool(written) != (name in FOR_OLD_GRAPHS), (
        f"{name}: write the rule that uses it in src/onnxgrad/autodiff/rules, or give the reason in FOR_OLD_GRAPHS"
    )
