"""Adapters in the Trainer: curves as peft's, files that plain onnxruntime runs, checkpoints, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from model.lora_problems import MODELS, TARGETS, VARIANTS

from onnxgrad import Trainer
from onnxgrad.errors import AdapterError
from onnxgrad.model.lora import Lora

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "lora"
SETTINGS = [(name, v) for name in TARGETS for v in VARIANTS]


def made(title: str, variant: str = "lora", **more) -> tuple[Trainer, list]:
    problem = MODELS[title.split()[0]]()
    settings = {"targets": TARGETS[title][0], **problem.lora, **more}
    lora = Lora(variant=variant, **settings)
    trainer = Trainer(problem.model(), loss="cross_entropy", lr=problem.lr, lora=lora)
    return trainer, problem.batches


@pytest.mark.parametrize(("title", "variant"), SETTINGS)
def test_loss_curves_equal_peft_over_100_steps(title, variant):
    trainer, batches = made(title, variant)
    curve = [trainer.step(x, y)["loss"] for x, y in batches]
    np.testing.assert_allclose(
        curve, np.load(FOLDER / "curves.npz")[f"{title}/{variant}"], rtol=1e-4
    )
    assert np.mean(curve[-10:]) < 0.97 * np.mean(curve[:10])


def test_the_frozen_model_costs_nothing():
    """No gradient but of the branches, no optimizer state, and no product for the gradient of a weight."""
    trainer, batches = made("encoder")
    trainer.step(*batches[0])
    assert all("lora_" in name for name in trainer.get_weights())
    assert all("lora_" in name for name in trainer.store.state())
    graph = trainer._plan.graph.model.proto.graph
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in graph.output}
    assert all(4 in shape for name, shape in shapes.items() if "lora_" in name)
    kept = {i.name for i in graph.initializer}
    assert "encoder.layer.0.attention.query.weight" in kept
    # The first table feeds the first query: nothing before the first branch has a backward node.
    assert not any(n.op_type == "GatherGrad" for n in graph.node)
    # What a frozen layer read is needed for its own gradient alone: nothing on the way back reads it.
    for name in ("intermediate", "output"):
        weight = f"encoder.layer.1.{name}.weight"
        (read,) = [
            n.input[0] for n in graph.node if weight in n.input and not n.name.startswith("grad/")
        ]
        later = [n.op_type for n in graph.node if read in n.input and n.name.startswith("grad/")]
        assert later in ([], ["FusedMatMul"]) or set(later) <= {"LayerNormalizationGrad"}, (
            name,
            later,
        )
    gradients = [n for n in graph.node if n.name.startswith("grad/")]
    sizes = {
        tuple(t.dims) for t in graph.initializer if t.name.endswith("weight") and len(t.dims) == 2
    }
    known = {
        v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in graph.value_info
    }
    products = [
        o for n in gradients if n.op_type in ("MatMul", "Gemm", "FusedMatMul") for o in n.output
    ]
    assert products
    assert not [o for o in products if known.get(o) in sizes], (
        "no product has the shape of a frozen weight"
    )


def run(
    path: Path, x: np.ndarray, adapter: Path | None = None, rounding: bool = True
) -> np.ndarray:
    """In a plain session; without `rounding` it does not turn what QDQ products read into 8 bits."""
    import onnxruntime

    options, run_options = onnxruntime.SessionOptions(), onnxruntime.RunOptions()
    options.log_severity_level = 3
    if not rounding:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    if adapter is not None:
        loaded = onnxruntime.LoraAdapter()
        loaded.Load(str(adapter))
        run_options.add_active_adapter(loaded)
    return session.run(None, {"x": x}, run_options)[0]


@pytest.mark.parametrize(("title", "variant"), SETTINGS)
def test_what_was_trained_runs_in_plain_onnxruntime(title, variant, tmp_path):
    trainer, batches = made(title, variant)
    for batch in batches[:5]:
        trainer.step(*batch)
    x = batches[0][0]
    expected = trainer.predict(x)
    trainer.save(tmp_path / "merged.onnx")
    np.testing.assert_allclose(run(tmp_path / "merged.onnx", x), expected, rtol=0, atol=2e-5)
    merged = onnx.load(tmp_path / "merged.onnx")
    assert [n.op_type for n in merged.graph.node] == [
        n.op_type for n in MODELS[title.split()[0]]().model().graph.node
    ]
    folder = tmp_path / "adapter"
    trainer.save_adapter(folder)
    got = run(folder / "model.onnx", x, folder / "adapter.onnx_adapter")
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5)
    again, _ = made(title, variant, start=folder)
    np.testing.assert_allclose(again.predict(x), expected, rtol=0, atol=2e-5)


def test_a_checkpoint_resumes_to_the_same_bits(tmp_path):
    straight, batches = made("decoder", "dora", dropout=0.1)
    for batch in batches[:6]:
        straight.step(*batch)
    first, _ = made("decoder", "dora", dropout=0.1)
    for batch in batches[:3]:
        first.step(*batch)
    first.save_checkpoint(tmp_path / "c")
    second, _ = made("decoder", "dora", dropout=0.1)
    second.load_checkpoint(tmp_path / "c")
    for batch in batches[3:6]:
        second.step(*batch)
    for name, array in straight.get_weights().items():
        np.testing.assert_array_equal(second.get_weights()[name], array)


def test_dropout_is_of_the_branch_only():
    dropped, batches = made("encoder", dropout=0.5)
    plain, _ = made("encoder")
    x, y = batches[0]
    assert dropped.step(x, y)["loss"] == plain.step(x, y)["loss"], (
        "B is zero: the branch adds nothing"
    )
    assert dropped.step(x, y)["loss"] != plain.step(x, y)["loss"]
    np.testing.assert_array_equal(dropped.predict(x), dropped.predict(x))


def test_a_head_is_trained_in_full_beside_the_adapter(tmp_path):
    trainer, batches = made("encoder", modules_to_save="classifier")
    trainer.step(*batches[0])
    before = MODELS["encoder"]().weights["classifier.weight"]
    assert np.abs(trainer.get_weights()["classifier.weight"] - before).max() > 1e-3
    trainer.save_adapter(tmp_path / "a")
    x = batches[0][0]
    got = run(tmp_path / "a" / "model.onnx", x, tmp_path / "a" / "adapter.onnx_adapter")
    np.testing.assert_allclose(got, trainer.predict(x), rtol=0, atol=2e-5)


def test_notes_say_what_is_adapted():
    trainer, _ = made("encoder")
    texts = [str(note) for note in trainer.notes if note.kind == "lora"]
    assert texts == [
        "LoRA of rank 4, alpha 6, on 4 layers (query and value of attention): 512 numbers, "
        "11 % of the model's 4,791; targets=... adapts other layers"
    ]
    assert not [note for note in trainer.notes if note.kind == "not a weight"]


def test_trainable_beside_lora_is_refused():
    with pytest.raises(ValueError, match="name what is trained in full in Lora"):
        Trainer(MODELS["cnn"]().model(), loss="cross_entropy", lora=4, trainable="head")


def test_a_trainer_without_lora_has_no_adapter(tmp_path):
    with pytest.raises(AdapterError, match="the trainer has no adapter"):
        Trainer(MODELS["cnn"]().model(), loss="cross_entropy").save_adapter(tmp_path / "a")
