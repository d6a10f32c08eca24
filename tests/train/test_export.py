"""The file that is written: the caller's own graph with new numbers, checked before it takes its name."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from train import problems

from onnxgrad import Trainer
from onnxgrad.errors import ExportError
from onnxgrad.train.files import export


def trained(model, steps: int = 3) -> tuple[Trainer, np.ndarray]:
    trainer = Trainer(model, loss="cross_entropy", lr=1e-2)
    batches = problems.cnn().batches
    for x, y in batches[:steps]:
        trainer.step(x, y)
    return trainer, batches[0][0]


def check(trainer: Trainer, path, x) -> None:
    got = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0]
    np.testing.assert_allclose(got, trainer.predict(x), atol=1e-5)


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for tensor in bare.graph.initializer:
        for field in ("raw_data", "float_data"):
            tensor.ClearField(field)
    return bare


def test_everything_but_the_numbers_is_kept(tmp_path):
    model = problems.cnn().model()
    model.producer_name, model.doc_string, model.model_version = "somebody", "a net", 7
    onnx.helper.set_model_props(model, {"labels": "a,b,c,d"})
    model.graph.node[0].name, model.graph.node[0].doc_string = "first", "looks at edges"
    before = model.SerializeToString()
    trainer, x = trained(model)
    trainer.save(tmp_path / "tuned.onnx")
    written = onnx.load(tmp_path / "tuned.onnx")
    assert model.SerializeToString() == before
    assert without_weights(written) == without_weights(model)
    check(trainer, tmp_path / "tuned.onnx", x)
    assert [p.name for p in tmp_path.iterdir()] == ["tuned.onnx"]


@pytest.mark.parametrize("kind", ["path", "bytes", "ir"])
def test_models_of_every_kind(kind, tmp_path):
    model = problems.cnn().model()
    onnx.save(model, tmp_path / "m.onnx")
    given = {"path": tmp_path / "m.onnx", "bytes": model.SerializeToString()}.get(kind)
    trainer, x = trained(ir.load(tmp_path / "m.onnx") if kind == "ir" else given, steps=1)
    trainer.save(tmp_path / "tuned.onnx")
    check(trainer, tmp_path / "tuned.onnx", x)


def test_an_untrained_model_can_be_written(tmp_path):
    trainer, x = trained(problems.cnn().model(), steps=0)
    trainer.save(tmp_path / "new" / "tuned.onnx")
    check(trainer, tmp_path / "new" / "tuned.onnx", x)


def external(folder) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / "model.onnx"
    onnx.save(
        problems.cnn().model(), path, save_as_external_data=True, location="model.onnx.data",
        size_threshold=0,
    )  # fmt: skip
    return path


def test_external_data_keeps_its_layout(tmp_path):
    trainer, x = trained(external(tmp_path / "a"))
    (tmp_path / "b").mkdir()
    trainer.save(tmp_path / "b" / "model.onnx")
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == ["model.onnx", "model.onnx.data"]
    a, b = (onnx.load(tmp_path / f / "model.onnx", load_external_data=False) for f in "ab")
    assert a == b
    check(trainer, tmp_path / "b" / "model.onnx", x)


def test_beside_the_source_external_data_gets_its_own_name(tmp_path):
    source = external(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    trainer, x = trained(source)
    for _ in range(2):  # twice: the first result is replaced whole
        trainer.save(tmp_path / "tuned.onnx")
        check(trainer, tmp_path / "tuned.onnx", x)
        trainer.step(*problems.cnn().batches[4])
    for name, content in before.items():
        assert (tmp_path / name).read_bytes() == content
    assert len(list(tmp_path.iterdir())) == 4


def test_over_the_source_itself(tmp_path):
    source = external(tmp_path)
    trainer, x = trained(source)
    trainer.save(source)
    check(trainer, source, x)


def test_a_file_that_predicts_otherwise_is_not_written(tmp_path, monkeypatch):
    trainer, _ = trained(problems.cnn().model())
    path = tmp_path / "tuned.onnx"
    path.write_bytes(b"an earlier model")
    monkeypatch.setattr(export, "_set", lambda *arguments: None)  # forgets the new numbers
    with pytest.raises(ExportError) as caught:
        trainer.save(path)
    assert str(caught.value).startswith(
        f"{path} was not written: output 'logits' of a plain session differs from the trainer's by "
    )
    assert path.read_bytes() == b"an earlier model"
    assert [p.name for p in tmp_path.iterdir()] == ["tuned.onnx"]


def test_functions_and_old_opsets_are_written_as_they_came(tmp_path):
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 11, "mine" : 1]>
        g (float[N, 3] x) => (float[N, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> {
            h = MatMul(x, w)
            y = mine.twice(h)
        }
        <domain: "mine", opset_import: ["" : 11]>
        twice (a) => (b) { b = Add(a, a) }""")
    trainer = Trainer(model, loss="mse", lr=0.1)
    x = np.ones((4, 3), np.float32)
    trainer.step(x, np.zeros((4, 2), np.float32))
    trainer.save(tmp_path / "m.onnx")
    written = onnx.load(tmp_path / "m.onnx")
    assert without_weights(written) == without_weights(model)
    check(trainer, tmp_path / "m.onnx", x)
