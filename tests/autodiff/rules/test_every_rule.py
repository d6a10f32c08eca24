"""Every rule has a case: what is in the registry and in no table is listed here, and fails."""

import importlib
from pathlib import Path

from autodiff.harness import RuleCase

from onnxgrad.autodiff.rule import FUSED, STANDARD

# Judged elsewhere, with the reason.
ELSEWHERE = {
    ("", "Dropout"): "random: test_walk.py compares with the mask it drew",
    ("", "If"): "test_bodies.py: a node with bodies is no row of a table",
    ("", "Loop"): "test_repeats.py, as If",
    ("", "Scan"): "test_repeats.py, as If",
    ("com.microsoft", "SeededDropout"): "random: tests/train/test_modes.py compares with its mask",
    (
        "com.microsoft",
        "AttentionTraining",
    ): "tests/kernels/attention: no form in standard operators",
    ("com.microsoft", "LinearTraining"): "tests/graph/test_patterns.py: what it stands for",
    (
        "com.microsoft",
        "GroupNormalizationTraining",
    ): "tests/graph/test_patterns.py: what it stands for",
    ("com.microsoft", "GeluTraining"): "tests/graph/test_patterns.py: what it stands for",
    ("com.microsoft", "MaxPoolTraining"): "tests/graph/test_patterns_of_convolutions.py",
    ("com.microsoft", "GateTraining"): "tests/graph/test_patterns.py: what it stands for",
    ("com.microsoft", "FakeQuant"): "test_fake_quant.py: rounding has no central difference",
    ("com.microsoft", "GroupQueryAttention"): "test_group_query.py: its formula in float64",
    (
        "com.microsoft",
        "MatMulBnb4",
    ): "tests/train/test_lora_quantised.py: float64 on the weights that the codes mean",
    ("com.microsoft", "DynamicQuantizeMatMul"): "test_lora_quantised.py, as MatMulBnb4: it rounds",
    (
        "com.microsoft",
        "LinearCrossEntropy",
    ): "tests/kernels/test_product_cross_entropy.py, and its reference",
    ("com.microsoft", "MatMulNBitsCrossEntropy"): "as LinearCrossEntropy",
    ("", "CastLike"): "test_walk.py: its second input is only a type",
}


def cases() -> set[tuple[str, str]]:
    found = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        module = importlib.import_module(f"autodiff.rules.{path.stem}")
        for value in vars(module).values():
            if isinstance(value, list):
                found.update((c.domain, c.op) for c in value if isinstance(c, RuleCase))
    return found


def test_every_rule_has_a_case():
    missing = {*STANDARD, *FUSED} - cases() - set(ELSEWHERE)
    assert not missing, (
        f"no case for {sorted(missing)}; add a row to tests/autodiff/rules/test_<family>.py"
    )
