"""Adapter files: peft folders and .onnx_adapter, in and out; damaged and foreign ones are refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from model.lora_problems import MODELS, TARGETS, VARIANTS
from model.test_lora_graph import adapted, moved

from onnxgrad.errors import AdapterError
from onnxgrad.model.lora import Lora, ort_file, peft
from onnxgrad.model.lora.start import _layer

SETTINGS = [(name, v) for name in TARGETS for v in VARIANTS]


@pytest.fixture
def written(tmp_path):
    """An adapter of the encoder as a folder and as a file."""
    _, planned = adapted(MODELS["encoder"]().model(), Lora(r=3))
    tensors = moved(planned.tensors)
    peft.write(tmp_path / "folder", planned, tensors, "base")
    ort_file.write(tmp_path / "a.onnx_adapter", planned.parameters(tensors))
    return tmp_path


@pytest.mark.parametrize("kind", ["folder", "a.onnx_adapter"])
@pytest.mark.parametrize(("name", "variant"), SETTINGS)
def test_an_adapter_that_was_written_is_a_start(name, variant, kind, tmp_path):
    problem = MODELS[name.split()[0]]()
    lora = Lora(r=3, alpha=5, variant=variant, targets=TARGETS[name][0])
    _, planned = adapted(problem.model(), lora)
    tensors = moved(planned.tensors)
    peft.write(tmp_path / "folder", planned, tensors, "base")
    ort_file.write(tmp_path / "a.onnx_adapter", planned.parameters(tensors))
    _, again = adapted(problem.model(), Lora(start=tmp_path / kind))
    assert [x.name for x in again.layers] == [x.name for x in planned.layers]
    expected = planned.merged(tensors)
    for name, array in again.merged(again.tensors).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-6)
    if kind == "folder":
        assert again.lora.scale == pytest.approx(lora.scale)
        for name, array in again.tensors.items():
            np.testing.assert_array_equal(array, tensors[name])


def test_onnxruntime_writes_what_is_read_and_reads_what_is_written(written):
    import onnxruntime

    ours = ort_file.read(written / "a.onnx_adapter")
    theirs = onnxruntime.AdapterFormat.read_adapter(str(written / "a.onnx_adapter"))
    assert {n: v.numpy().tolist() for n, v in theirs.get_parameters().items()} == {
        n: a.tolist() for n, a in ours.items()
    }
    made = onnxruntime.AdapterFormat()
    made.set_adapter_version(3)
    made.set_model_version(2)
    half = np.arange(6, dtype=np.float16).reshape(2, 3)
    made.set_parameters({"h": onnxruntime.OrtValue.ortvalue_from_numpy(half)})
    made.export_adapter(str(written / "theirs.onnx_adapter"))
    np.testing.assert_array_equal(ort_file.read(written / "theirs.onnx_adapter")["h"], half)


def test_weights_trained_in_full_travel_with_the_adapter(tmp_path):
    proto = MODELS["encoder"]().model()
    model, planned = adapted(proto, Lora(modules_to_save="classifier"))
    assert planned.saved == ["classifier.weight", "classifier.bias"]
    tensors = moved(planned.tensors)
    tensors.update(
        {
            n: np.full(model.graph.initializers[n].shape.numpy(), 0.5, np.float32)
            for n in planned.saved
        }
    )
    peft.write(tmp_path / "folder", planned, tensors, "base")
    config = json.loads((tmp_path / "folder" / peft.CONFIG).read_text())
    assert config["modules_to_save"] == ["classifier"]
    again, _ = adapted(proto, Lora(start=tmp_path / "folder"))
    assert np.all(again.graph.initializers["classifier.weight"].const_value.numpy() == 0.5)


def test_every_truncation_of_a_file_is_refused(written):
    whole = (written / "a.onnx_adapter").read_bytes()
    expected = ort_file.read(written / "a.onnx_adapter")
    for size in range(0, len(whole), 13):
        (written / "cut").write_bytes(whole[:size])
        with pytest.raises(AdapterError, match=r"cut off|not an adapter|damaged"):
            ort_file.read(written / "cut")
    rng = np.random.default_rng(0)
    for _ in range(300):  # flipped bytes are refused or change a number or a name, nothing else
        bad = bytearray(whole)
        bad[rng.integers(len(bad))] ^= 1 << rng.integers(8)
        (written / "bad").write_bytes(bad)
        try:
            found = ort_file.read(written / "bad")
        except AdapterError:
            continue
        assert len(found) <= len(expected)


def test_a_truncated_folder_is_refused(written):
    file = written / "folder" / peft.TENSORS
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(AdapterError, match="folder is damaged or cut off"):
        adapted(MODELS["encoder"]().model(), Lora(start=written / "folder"))
    file.unlink()
    with pytest.raises(AdapterError, match="is it a peft folder"):
        adapted(MODELS["encoder"]().model(), Lora(start=written / "folder"))


@pytest.mark.parametrize("kind", ["folder", "a.onnx_adapter"])
def test_an_adapter_of_another_model_is_refused(written, kind):
    with pytest.raises(AdapterError) as caught:
        adapted(MODELS["decoder"]().model(), Lora(start=written / kind))
    assert str(caught.value).startswith(
        f"the adapter {written / kind} is of another model: it adapts "
        "'encoder.layer.0.attention.query', and the nearest layer of this one is "
    )


def test_an_adapter_of_other_sizes_is_refused(written):
    problem = MODELS["encoder"]()
    tensors = ort_file.read(written / "a.onnx_adapter")
    name = "encoder.layer.0.attention.query.lora_A.weight"
    tensors[name] = tensors[name][:8]
    ort_file.write(written / "small.onnx_adapter", tensors)
    with pytest.raises(
        AdapterError, match=r"lora_A of '.*' has shape \[8, 3\], and the layer takes \[16, 3\]"
    ):
        adapted(problem.model(), Lora(start=written / "small.onnx_adapter"))


def test_what_is_no_adapter_is_refused(written):
    proto = MODELS["encoder"]().model()
    with pytest.raises(AdapterError, match="adapter does not exist"):
        adapted(proto, Lora(start=written / "nothing.onnx_adapter"))
    (written / "text").write_text("hello, world")
    with pytest.raises(AdapterError, match="text is not an adapter of onnxruntime"):
        adapted(proto, Lora(start=written / "text"))
    config = written / "folder" / peft.CONFIG
    config.write_text(json.dumps({"peft_type": "IA3"}))
    with pytest.raises(AdapterError, match="is of type 'IA3', expected 'LORA'"):
        adapted(proto, Lora(start=written / "folder"))


def test_the_bytes_of_an_adapter_begin_where_onnxruntime_wants_them():
    """At multiples of 8, whatever stands before them: onnxruntime reads them in place."""
    for count in range(1, 12):
        marks = {"a" * count: np.full(count, 1e30), "b": np.full(3, 2e30), "c": np.full(1, 3e30)}
        data = ort_file.to_bytes(marks)
        for array in marks.values():
            assert data.index(array.tobytes()) % 8 == 0


@pytest.mark.parametrize(
    ("module", "found"),
    [("a.b", "a.b"), ("model.a.b", "a.b"), ("b", "a.b"), ("base.x.y.z", "x.y.z"), ("z", "x.y.z")],
)
def test_wrappers_put_words_before_a_name(module, found):
    layers = [SimpleNamespace(name=name) for name in ("a.b", "x.y.z")]
    assert _layer(Path("adapter"), module, layers).name == found


@pytest.mark.parametrize("module", ["q", "nob", "xa.b", "w"])
def test_a_name_of_another_model_is_refused(module):
    layers = [SimpleNamespace(name=name) for name in ("a.b", "x.w", "y.w")]
    with pytest.raises(AdapterError, match=f"is of another model: it adapts '{module}'"):
        _layer(Path("adapter"), module, layers)
