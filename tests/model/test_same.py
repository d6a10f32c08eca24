"""`inspect` and Trainer say the same of every model: of the tests, of exporters, of optimisers and quantisers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import small_models
from model import lora_problems, merged_models, test_precision
from train import problems

from onnxgrad import Trainer, inspect
from onnxgrad.errors import GradientError

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "networks"
EXPORTED = [(p.stem, e) for p in sorted(FOLDER.glob("*.npz")) for e in ("torchscript", "dynamo")]


def exported(name: str, exporter: str) -> bytes:
    with np.load(FOLDER / f"{name}.npz") as golden:
        return golden[exporter].tobytes()


def check_same(model) -> None:
    """What inspect calls trainable is what "all" trains; where something is in the way, both refuse."""
    report = inspect(model)
    names = {p.name for p in report.parameters if p.trainable}
    blocked = {p.name for p in report.parameters if p.kind == "weight" and not p.trainable}
    assert not any(o.node.startswith(("grad/", "loss/")) for o in report.obstacles)
    if blocked:
        with pytest.raises(GradientError):
            Trainer(model, loss="mse")
        assert (
            not names
            or set(Trainer(model, loss="mse", trainable=sorted(names)).get_weights()) >= names
        )
        return
    if not names:
        with pytest.raises(ValueError, match="no weights that its loss depends on"):
            Trainer(model, loss="mse")
        return
    trainer = Trainer(model, loss="mse")
    statistics = {p.name for p in report.parameters if p.kind == "statistic"}
    assert set(trainer.get_weights()) - statistics == names
    assert {str(n) for n in trainer.notes} - set(report.warnings) == set()


@pytest.mark.parametrize(("name", "exporter"), EXPORTED, ids=["-".join(e) for e in EXPORTED])
def test_what_exporters_write(name, exporter):
    check_same(exported(name, exporter))


MODELS = {
    "mlp": small_models.mlp,
    "merged by the older exporter": merged_models.torchscript_norms,
    "merged by the newer exporter": merged_models.dynamo_norms,
    "tied": merged_models.tied_embedding,
    "a transpose": lambda: merged_models.tied_embedding(True),
    "instance norm that keeps statistics": merged_models.instance_norm,
    "float16": lambda: test_precision.network("float16"),
    "bfloat16": lambda: test_precision.network("bfloat16"),
    **{name: lambda make=make: make().model() for name, make in problems.PROBLEMS.items()},
}


@pytest.mark.parametrize("title", MODELS)
def test_models_of_the_tests(title):
    check_same(MODELS[title]())


OPTIMISED = [(n, "dynamo") for n in ("bert", "resnet", "lstm_tagger", "vit")]
OPTIMISED += [("lstm_tagger", "torchscript")]


@pytest.mark.parametrize("level", ["BASIC", "EXTENDED"])
@pytest.mark.parametrize(("name", "exporter"), OPTIMISED, ids=["-".join(e) for e in OPTIMISED])
def test_files_that_the_optimiser_of_onnxruntime_saved(name, exporter, level, tmp_path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(
        onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}"
    )
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    onnxruntime.InferenceSession(exported(name, exporter), options)
    check_same(tmp_path / "optimised.onnx")
    Trainer(tmp_path / "optimised.onnx", loss="mse").save(tmp_path / "tuned.onnx")
    kept = [t.name for t in onnx.load(tmp_path / "tuned.onnx").graph.initializer]
    assert {t.name for t in onnx.load(tmp_path / "optimised.onnx").graph.initializer} <= set(kept)


def test_a_file_that_was_quantised_dynamically(tmp_path):
    from onnxruntime.quantization import quantize_dynamic

    onnx.save(problems.PROBLEMS["mlp"]().model(), tmp_path / "float.onnx")
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "int.onnx")
    check_same(tmp_path / "int.onnx")


def test_a_file_in_four_bits():
    """ "Partly trainable: 5 of 89,543 numbers": a product in four bits was an obstacle for what lies before it."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    nodes = [
        merged_models.node("MatMul", "x w1", "a"),
        merged_models.node("LayerNormalization", "a scale bias", "n"),
        merged_models.node("MatMul", "n w2", "c"),
        merged_models.node("Add", "c b2", "y"),
    ]
    tensors = {"w1": merged_models.normal(64, 64), "scale": merged_models.normal(64)}
    tensors |= {"bias": merged_models.normal(64), "w2": merged_models.normal(64, 64)}
    model = merged_models.model(
        nodes, {**tensors, "b2": merged_models.normal(64)}, x=("N", 64), y=("N", 64)
    )
    quantizer = MatMulNBitsQuantizer(model, block_size=32)
    quantizer.process()
    made = quantizer.model.model
    assert [n.op_type for n in made.graph.node].count("MatMulNBits") == 2
    assert inspect(made).obstacles == []
    assert {p.name for p in inspect(made).parameters if p.trainable} == {"scale", "bias", "b2"}
    check_same(made)


def test_a_shape_beside_the_way_blocks_nothing():
    """A detector reads the size of its picture: Shape has no gradient, and nobody needs one."""
    nodes = [
        merged_models.node("Conv", "x w", "h"),
        merged_models.node("Shape", "h", "s"),
        merged_models.node("Cast", "s", "f", to=onnx.TensorProto.FLOAT),
        merged_models.node("ReduceProd", "f", "area", keepdims=0),
        merged_models.node("Div", "h area", "y"),
    ]
    tensors = {"w": merged_models.normal(2, 3, 3, 3)}
    model = merged_models.model(nodes, tensors, x=("N", 3, "H", "W"), y=("N", 2, "A", "B"))
    assert inspect(model).trainable
    assert inspect(model).obstacles == []
    check_same(model)


@pytest.mark.parametrize("make", [lora_problems.encoder, lora_problems.decoder, lora_problems.cnn])
def test_models_that_adapters_are_tried_on(make):
    check_same(make().model())


def test_an_operator_without_a_rule_is_refused_by_both():
    model = small_models.with_node("Bernoulli", "")
    report = inspect(model)
    with pytest.raises(GradientError) as error:
        Trainer(model, loss="mse")
    assert [o.operator for o in report.obstacles] == ["Bernoulli"]
    assert report.obstacles[0].because in str(error.value)
