"""The written file is tried in a plain session: how far may its outputs lie from the trainer's?"""

from __future__ import annotations

import types

import numpy as np
import onnx
import pytest
from model.lora_problems import MODELS
from train.test_lora_quantised import PLACES, quantised

from onnxgrad import Trainer
from onnxgrad.errors import ExportError
from onnxgrad.model.lora import Lora
from onnxgrad.train.files import verify


def trained(tmp_path) -> Trainer:
    """Weights behind a DequantizeLinear, where onnxruntime rounds what products read."""
    x, y = MODELS["encoder"]().batches[0]
    model = quantised("QDQ weights", tmp_path)
    trainer = Trainer(model, loss="cross_entropy", lora=Lora(r=4, targets=PLACES))
    trainer.step(x, y)
    return trainer


@pytest.mark.parametrize(("far", "written"), [(0.0, True), (0.03, False)])
def test_room_is_what_rounding_moves_and_no_more(far, written, tmp_path, monkeypatch):
    """A file whose outputs are off by 3 % of the largest is not written, though 8 bits move some by 1 %."""
    trainer = trained(tmp_path)
    run = verify._session

    class Off:
        def __init__(self, session):
            self.session = session

        def __getattr__(self, name):
            return getattr(self.session, name)

        def run(self, *rest):
            return [a + far * np.abs(a).max() for a in self.session.run(*rest)]

    monkeypatch.setattr(verify, "_session", lambda *a, **k: Off(run(*a, **k)))
    if written:
        trainer.save(tmp_path / "t.onnx")
        assert onnx.load(tmp_path / "t.onnx").graph.node
    else:
        with pytest.raises(ExportError, match=r"was not written: output .* differs"):
            trainer.save(tmp_path / "t.onnx")
        assert not list(tmp_path.glob("*t.onnx*"))


def test_an_output_behind_one_that_is_no_tensor_is_compared_too(tmp_path, monkeypatch):
    """As classifiers of scikit-learn have it: a map first, of which the trainer sees the tensor."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 2] x) => (float[N, 2] a, float[N, 2] b) <float[2, 2] w = {1, 2, 3, 4}>
        { a = MatMul(x, w)  b = Tanh(a) }""")
    trainer = Trainer(model, loss={"a": "mse"}, optimizer="sgd", lr=0.1)
    trainer.step(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))
    trainer.predict(np.ones((2, 2), np.float32))
    run, far = verify._session, [0.0]

    class Maps:
        def __init__(self, session):
            self.session = session

        def __getattr__(self, name):
            return getattr(self.session, name)

        def run(self, *rest):
            first, *others = self.session.run(*rest)
            return [[{0: 1.0}] * len(first), *(a + far[0] for a in others)]

    monkeypatch.setattr(verify, "_session", lambda *a, **k: Maps(run(*a, **k)))
    trainer.save(tmp_path / "t.onnx")
    far[0] = 0.5
    with pytest.raises(
        ExportError, match=r"output 'b' of a plain session differs from the trainer's by 0\.5"
    ):
        trainer.save(tmp_path / "t.onnx")


def session(**inputs):
    """What is asked of a session: its inputs, by type and shape."""
    found = [
        types.SimpleNamespace(name=n, type=f"tensor({k})", shape=s) for n, (k, s) in inputs.items()
    ]
    return types.SimpleNamespace(get_inputs=lambda: found)


def test_as_many_rows_as_the_file_takes():
    rows = np.arange(3)
    sample = {"x": rows, "free": rows, "one": np.float32(2), "other": rows, "none": np.zeros(0)}
    made = session(x=("float", [5]), free=("float", ["N"]), one=("float", []), none=("float", [4]))
    found = verify._of_fixed_size(sample, made)
    assert {n: np.asarray(a).tolist() for n, a in found.items()} == {
        "x": [0, 1, 2, 0, 1], "free": [0, 1, 2], "one": 2.0, "other": [0, 1, 2], "none": [],
    }  # fmt: skip


def test_caches_begin_empty():
    shape = ["batch", 2, "past", 4]
    made = session(
        **{"past_key_values.0.key": ("float", shape), "past_key_values.0.value": ("float16", shape),
           "past_key_values.1.key": ("int64", shape), "past_key_values.2.key": ("float", shape[:3]),
           "past_key_values.3.key": ("float", shape), "x": ("float", shape)},
    )  # fmt: skip
    given = {"x": np.zeros((3, 1), np.float32), "past_key_values.3.key": np.float32(0)}
    found = verify.empty_pasts(made, given)
    assert {n: (a.shape, a.dtype) for n, a in found.items()} == {
        "past_key_values.0.key": ((3, 2, 0, 4), np.float32), "past_key_values.0.value": ((3, 2, 0, 4), np.float16),
    }  # fmt: skip
    alone = session(**{"past_key_values.0.key": ("float", shape)})
    assert next(iter(verify.empty_pasts(alone, {}).values())).shape == (1, 2, 0, 4)


def test_half_precision_where_the_file_has_it():
    array = np.ones(2, np.float32)
    assert verify._as(array, "tensor(float16)").dtype == np.float16
    assert verify._as(array, "tensor(float)") is array
