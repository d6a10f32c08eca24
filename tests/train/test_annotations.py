"""Types and shapes that our graphs declare are true: onnxruntime plans memory by them, and inspect counts with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from model import lora_problems
from train import problems
from train.annotations import wrong, wrong_in_training

import onnxgrad
from onnxgrad.model.lora.settings import Lora
from onnxgrad.train import losses

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "networks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.npz"))


@pytest.mark.parametrize("name", NAMES)
def test_of_exported_networks(name):
    exporter = ("torchscript", "dynamo")[NAMES.index(name) % 2]
    with np.load(FOLDER / f"{name}.npz") as golden:
        inputs = [golden[n] for n in sorted(golden.files) if n.startswith("x/0/")]
        loss = losses.CrossEntropy(axis=int(golden["axis"]))
        trainer = onnxgrad.Trainer(golden[exporter].tobytes(), loss=loss, threads=1)
        batch = dict(
            zip(
                (*trainer.input_names, *trainer.target_names), [*inputs, golden["y/0"]], strict=True
            )
        )
    assert wrong_in_training(trainer, batch) == []


SETTINGS = {
    "plain": {}, "dropout": {"dropout": 0.5}, "frozen statistics": {"freeze_bn": True}, "head": {"trainable": "head"},
    "no patterns": {"patterns": False},
}  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", problems.PROBLEMS)
def test_of_every_way_to_train(name, settings):
    problem = problems.PROBLEMS[name]()
    trainer = onnxgrad.Trainer(
        problem.model(), loss="cross_entropy", threads=1, **SETTINGS[settings]
    )
    x, y = problem.batches[0]
    names = (*trainer.input_names, *trainer.target_names)
    assert wrong_in_training(trainer, dict(zip(names, (x, y), strict=True))) == []


@pytest.mark.parametrize("variant", ["lora", "rslora", "dora"])
@pytest.mark.parametrize("name", lora_problems.MODELS)
def test_of_adapters(name, variant):
    problem = lora_problems.MODELS[name]()
    lora = Lora(**{**problem.lora, "variant": variant})
    trainer = onnxgrad.Trainer(problem.model(), loss="cross_entropy", lora=lora, threads=1)
    x, y = problem.batches[0]
    names = (*trainer.input_names, *trainer.target_names)
    assert wrong_in_training(trainer, dict(zip(names, (x, y), strict=True))) == []


def test_a_wrong_shape_is_seen():
    import onnx

    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        m (float[N, 3] x) => (float[N, 3] y) <float[N, 4] h> { h = Neg(x)  y = Neg(h) }""")
    found = wrong(model, {"x": np.ones((2, 3), np.float32)})
    assert found == ["h has the shape [2, 3], declared ['N', 4]"]
