"""Weights in other files: what may be read, by onnxruntime's rule, and what a model may not name."""

from __future__ import annotations

import os

import numpy as np
import onnx
import onnxruntime
import pytest

from onnxgrad import Trainer, inspect
from onnxgrad.errors import FileError, ModelError
from onnxgrad.files.models import read_ir, read_proto, read_whole
from onnxgrad.graph import load

SIZE = 4 * 3 * 2


def model(location="w.bin", functions=False, opset=17, **entries) -> onnx.ModelProto:
    """y = x · w, where w lies in an external file."""
    text = f"""
        <ir_version: 8, opset_import: ["" : {opset}, "mine" : 1]>
        net (float[N, 3] x) => (float[N, 2] y) <float[3, 2] w = {{1, 2, 3, 4, 5, 6}}> {{
            y = {"mine.f(x, w)" if functions else "MatMul(x, w)"}
        }}"""
    if functions:
        text += """
        <domain: "mine", opset_import: ["" : 17]>
        f (a, b) => (c) { k = Constant<value = float[3, 2] {1, 2, 3, 4, 5, 6}>()
                          d = Add(b, k)  c = MatMul(a, d) }"""
    made = onnx.parser.parse_model(text)
    tensor = made.functions[0].node[0].attribute[0].t if functions else made.graph.initializer[0]
    outside(tensor, [("location", location), *entries.items()])
    return made


def outside(tensor: onnx.TensorProto, entries) -> None:
    for field in ("raw_data", "float_data"):
        tensor.ClearField(field)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries:
        tensor.external_data.add(key=key, value=str(value))


def write(folder, made: onnx.ModelProto, data: bytes | None = bytes(SIZE), name="w.bin"):
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "m.onnx").write_bytes(made.SerializeToString())
    if data is not None:
        (folder / name).write_bytes(data)
    return folder / "m.onnx"


def weights(path) -> np.ndarray:
    return load(path).graph.initializers["w"].const_value.numpy()


NUMBERS = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.mark.parametrize("name", ["w.bin", "sub/w.bin", "sub/../w.bin"])
def test_beside_the_model(name, tmp_path):
    (tmp_path / "sub").mkdir()
    path = write(tmp_path, model(name), NUMBERS.tobytes(), name)
    assert (weights(path) == NUMBERS).all()
    assert read_whole(path).graph.initializer[0].raw_data == NUMBERS.tobytes()


def test_an_old_opset_still_finds_its_data(tmp_path, monkeypatch):
    path = write(tmp_path / "a", model(opset=11), NUMBERS.tobytes())
    monkeypatch.chdir(tmp_path)
    assert (weights(path) == NUMBERS).all()


def hub_cache(root) -> os.PathLike:
    """The folders of the Hugging Face hub: every file of a snapshot is a link to a blob."""
    blobs, snapshot = root / "blobs", root / "snapshots" / "abc" / "onnx"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "11").write_bytes(model().SerializeToString())
    (blobs / "22").write_bytes(NUMBERS.tobytes())
    (snapshot / "m.onnx").symlink_to("../../../blobs/11")
    (snapshot / "w.bin").symlink_to("../../../blobs/22")
    return snapshot / "m.onnx"


def hard_links(root) -> os.PathLike:
    path = write(root / "model", model(), None)
    (root / "store").write_bytes(NUMBERS.tobytes())
    os.link(root / "store", root / "model" / "w.bin")
    return path


@pytest.mark.parametrize("layout", [hub_cache, hard_links], ids=lambda f: f.__name__)
def test_links_that_onnxruntime_follows(layout, tmp_path):
    path = layout(tmp_path)
    onnxruntime.InferenceSession(str(path))  # the judge
    assert (weights(path) == NUMBERS).all()
    trainer = Trainer(path, loss="mse", optimizer="sgd", lr=0.1)
    trainer.step(np.ones((2, 3), np.float32), np.ones((2, 2), np.float32))
    trainer.save(tmp_path / "out" / "tuned.onnx")
    names = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert names == ["tuned.onnx", "tuned.onnx.data"]
    assert not (tmp_path / "out" / "tuned.onnx.data").is_symlink()
    assert (weights(path) == NUMBERS).all(), "the cache itself is as it was"
    assert not (weights(tmp_path / "out" / "tuned.onnx") == NUMBERS).all()


def climbing(tmp_path):
    return write(tmp_path / "a", model("../secret")), "'../secret' leads out of its folder"


def climbing_from_inside(tmp_path):
    return write(tmp_path / "a", model("sub/../../secret")), "leads out of its folder"


def absolute(tmp_path):
    return write(tmp_path / "a", model(str(tmp_path / "secret"))), "is absolute"


def link_out(tmp_path):
    path = write(tmp_path / "a", model(), None)
    (path.parent / "w.bin").symlink_to(tmp_path / "secret")
    return path, "is a link that leads out of its folder"


def folder_link_out(tmp_path):
    path = write(tmp_path / "a", model("up/secret"), None)
    (path.parent / "up").symlink_to(tmp_path)
    return path, "is a link that leads out of its folder"


def in_a_function(tmp_path):
    made = model("../secret", functions=True)
    return write(tmp_path / "a", made), "leads out of its folder"


def two_locations(tmp_path):
    made = model("w.bin")
    outside(made.graph.initializer[0], [("location", "../secret")])
    return write(tmp_path / "a", made), "tensor 'w' has the external-data entry 'location' twice"


def beyond_the_end(tmp_path):
    return write(tmp_path / "a", model(offset=8)), "w.bin has 24 bytes, expected 32"


def missing(tmp_path):
    return write(tmp_path / "a", model(), None), "w.bin is missing. Put them back"


def pipe(tmp_path):
    path = write(tmp_path / "a", model(), None)
    os.mkfifo(path.parent / "w.bin")
    return path, "w.bin is not a file"


def empty_name(tmp_path):
    return write(tmp_path / "a", model("")), "'' is not a file name"


def name_with_a_line_end(tmp_path):
    return write(tmp_path / "a", model("a\nb")), "is not a file name"


BAD = [
    climbing, climbing_from_inside, absolute, link_out, folder_link_out, in_a_function,
    two_locations, beyond_the_end, missing, pipe, empty_name, name_with_a_line_end,
]  # fmt: skip


@pytest.mark.parametrize("case", BAD, ids=lambda f: f.__name__)
def test_refused_by_everyone(case, tmp_path):
    (tmp_path / "secret").write_bytes(NUMBERS.tobytes())
    path, reason = case(tmp_path)
    for reader in (read_proto, read_ir, load, inspect, lambda p: Trainer(p, loss="mse")):
        with pytest.raises((ModelError, FileError)) as caught:
            reader(path)
        assert reason in str(caught.value)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "entries",
    [{"length": -1}, {"length": 2**63}, {"length": 8}, {"offset": "1e3"}, {"offset": "-4"}],
    ids=str,
)
def test_numbers_that_cannot_be(entries, tmp_path):
    with pytest.raises(ModelError, match="tensor 'w'"):
        load(write(tmp_path, model(**entries)))


@pytest.mark.parametrize("key", ["offset", "length"])
@pytest.mark.parametrize("text", ["-1", "+24", "0x18", " 24", "24 ", "2e1", "٢٤", "9" * 20, ""])
def test_a_number_that_is_none_is_refused(tmp_path, key, text):
    """Python's int would take some of them, where onnxruntime does not."""
    path = write(tmp_path, model(**{key: text}))
    with pytest.raises(ModelError, match=f"'w' has the {key} .*expected a number of bytes"):
        read_proto(path)


def test_a_length_of_zero_means_all_of_it(tmp_path):
    """As onnx has it: a length that is not told, or 0."""
    path = write(tmp_path, model(length=0), NUMBERS.tobytes())
    np.testing.assert_array_equal(weights(path), NUMBERS)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in its folder", "from another folder"])
def test_a_constant_of_a_function_reads_the_file_beside_the_model(tmp_path, monkeypatch, elsewhere):
    path = write(tmp_path / "models", model(functions=True), NUMBERS.tobytes())
    monkeypatch.chdir(tmp_path if elsewhere else tmp_path / "models")
    read = read_ir(path)
    (function,) = read.functions.values()
    constant = next(node for node in function if node.op_type == "Constant")
    np.testing.assert_array_equal(constant.attributes["value"].value.numpy(), NUMBERS)
