"""Lists that follow from the contracts: an operator that one of them forgets fails here, by name."""

import ast
import importlib.util
import re
import sys
from pathlib import Path

import pytest
from golden.differences import EXTENSIONS

from onnxgrad.contracts import contracts

ROOT = Path(__file__).resolve().parents[1]
UPSTREAM = (ROOT / "tests" / "golden" / "upstream_schemas.json").read_text()
GOLDENS = {p.stem for p in (ROOT / "tests" / "golden").glob("*.npz")}
DRAWN = "".join(
    t for p in (ROOT / "tests" / "kernels").rglob("*.py") if "@given(" in (t := p.read_text())
)
RULES = "".join(p.read_text() for p in (ROOT / "src/onnxgrad/autodiff").rglob("*.py"))

# Kernels for graphs that the old package made: our own gradients use newer ones.
FOR_OLD_GRAPHS = {
    "SoftmaxGrad": "the softmax of opset 1, which the loader raises to 13",
    "LogSoftmaxGrad": "as SoftmaxGrad",
    "InvertibleLayerNormalizationGrad": "a choice of the old memory planner",
    "SoftmaxCrossEntropyLossGrad": "our rule writes the Internal form, which takes ignore_index as an input",
    "FakeQuantGrad": "our rule writes LearnedFakeQuantGrad",
}


def test_a_file_with_a_contract_is_listed():
    """A kernel that ops.inc forgets would not be compiled at all."""
    ops = ROOT / "native" / "ops"
    listed = set(re.findall(r"^ONNXGRAD_OP\((\w+), (\w+)\)", (ops / "ops.inc").read_text(), re.M))
    found = {
        (p.parent.name, p.stem) for p in ops.rglob("*.cpp") if "_contract() {" in p.read_text()
    }
    assert found == listed, f"native/ops/ops.inc and its folders differ: {sorted(found ^ listed)}"


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


# Operators of the old package that cannot be called there as they are here.
NOT_RECORDED = {
    "MaxPoolGrad": "the old one takes the static shape of its output, ours the shape of X as an input",
    "AveragePoolGrad": "as MaxPoolGrad",
    "ConvTransposeGrad": "a schema without a kernel for the CPU",
    "ResizeGrad": "as ConvTransposeGrad",
}


@pytest.mark.parametrize("contract", contracts().values(), ids=lambda c: c.name)
def test_what_the_old_package_computes_is_recorded_or_has_a_reason(contract):
    recorded, theirs = contract.python_name in GOLDENS, f'"{contract.name}"' in UPSTREAM
    assert recorded == (theirs and contract.name not in NOT_RECORDED), (
        f"{contract.name}: make goldens OPS={contract.name}, or give the reason in NOT_RECORDED"
    )


@pytest.mark.parametrize("name", contracts())
def test_an_operator_has_a_property_test(name):
    assert re.search(rf"\b{name}\b", DRAWN), f"{name}: no file of tests/kernels draws its inputs"


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("test_*.py")), ids=lambda p: p.stem)
def test_what_is_drawn_is_called_a_property(path):
    """`make check` draws 2,000 examples for the tests of that name."""
    for node in ast.walk(ast.parse(path.read_text())):
        drawn = [
            d for d in getattr(node, "decorator_list", ()) if ast.unparse(d).startswith("given(")
        ]
        assert not drawn or node.name.startswith("test_property_"), f"{path.name}: {node.name}"


@pytest.fixture(scope="module")
def benched() -> set[str]:
    """The operators of the benchmark's table."""
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        spec = importlib.util.spec_from_file_location("bench_lines", ROOT / "bench" / "lines.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules["bench_lines"] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "bench"))
    return {line.op for line in module.BENCHES}


@pytest.mark.parametrize("name", contracts())
def test_an_operator_has_a_line_in_the_benchmark(name, benched):
    assert name in benched, f"{name}: add a line to bench/lines.py"
