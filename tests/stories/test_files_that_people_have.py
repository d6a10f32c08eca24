"""Files that broke, through public names: links, old normalisations, tables without a header, turned pictures."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from job.problem import run
from onnx import helper, numpy_helper

from onnxgrad import Trainer, artifacts
from onnxgrad.api import CheckpointState, Module

RNG = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def line(outputs: int, path: str = "m.onnx") -> None:
    """Write y = x times a matrix, of two columns."""
    made = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 2] x) => (float[N, {outputs}] y) {{ y = MatMul(x, w) }}""")
    made.graph.initializer.append(numpy_helper.from_array(normal(2, outputs), "w"))
    onnx.save(made, path)


# ---- external data behind links


def symbolic(source: str, link: str) -> None:
    os.symlink(os.path.relpath(source, os.path.dirname(link)), link)


def chained(source: str, link: str) -> None:
    """A link to a link to the file."""
    os.symlink(os.path.basename(source), source + ".link")
    symbolic(source + ".link", link)


@pytest.mark.parametrize("link", [symbolic, chained, os.link])
def test_weights_behind_a_link_as_in_the_cache_of_a_hub(link, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line(2)
    made = onnx.load("m.onnx")
    os.makedirs("blobs")
    os.makedirs("snapshots/abc")
    settings = dict(save_as_external_data=True, location="w.bin", size_threshold=0)
    onnx.save(made, "blobs/m.onnx", **settings)
    for name in ("m.onnx", "w.bin"):
        link(f"blobs/{name}", f"snapshots/abc/{name}")
    onnxruntime.InferenceSession("snapshots/abc/m.onnx")  # what it takes, is taken
    trainer = Trainer("snapshots/abc/m.onnx", loss="mse", optimizer="sgd", lr=0.1)
    trainer.step(normal(4, 2), normal(4, 2))
    trainer.save("tuned.onnx")
    onnxruntime.InferenceSession("tuned.onnx")


# ---- BatchNormalization with five outputs


def old_norm(opset: int, batch: int | str) -> onnx.ModelProto:
    tensors = {"w": normal(4, 3), "b": normal(4), "scale": normal(4), "shift": normal(4),
               "mean": normal(4), "var": normal(4) ** 2 + 1}  # fmt: skip
    outputs = ["y", "new_mean", "new_var", "saved_mean", "saved_var"]
    norm = ["h", "scale", "shift", "mean", "var"]
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], transB=1),
        helper.make_node("BatchNormalization", norm, outputs, momentum=0.8),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [info("x", 1, [batch, 3])], [info("y", 1, [batch, 4])],
        [numpy_helper.from_array(a, n) for n, a in tensors.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=6)


@pytest.mark.parametrize("batch", [6, "N"])
@pytest.mark.parametrize("opset", [9, 10, 11, 12, 13])
def test_a_bias_in_front_of_a_normalisation_has_no_gradient(opset, batch, tmp_path):
    x, y = normal(6, 3), normal(6, 4)
    model = old_norm(opset, batch)
    artifacts.generate_artifacts(
        model, requires_grad=["w", "b", "scale", "shift"], frozen_params=["mean", "var"],
        loss=artifacts.LossType.MSELoss, artifact_directory=tmp_path,
    )  # fmt: skip
    state = CheckpointState.load_checkpoint(tmp_path / "checkpoint")
    module = Module(tmp_path / "training_model.onnx", state, tmp_path / "eval_model.onnx")
    module.train()
    module(x, y)
    slope = np.abs(state.parameters["w"].grad).max()
    assert slope > 1e-2
    assert np.abs(state.parameters["b"].grad).max() < 1e-5 * slope
    trainer = Trainer(model, loss="mse", optimizer="sgd", lr=1.0)
    before = trainer.get_weights()["b"].copy()
    trainer.step(x, y)
    np.testing.assert_allclose(trainer.get_weights()["b"], before, atol=1e-5)


# ---- tables without a header


def rows(kind: str) -> list[str]:
    made = []
    for number, (a, b) in enumerate(RNG.normal(size=(40, 2))):
        label = {"numbers": int(a > b), "words": "yes" if a > b else "no",
                 "rare words": f"class{number // 20}" if number else "first"}[kind]  # fmt: skip
        made.append(f"{a:.3f},{b:.3f},{label}")
    return made


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("kind", ["numbers", "words", "rare words"])
def test_a_first_row_is_not_eaten(kind, mark, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line(3)
    Path("d.csv").write_text("".join(f"{row.replace(',', mark)}\n" for row in rows(kind)))
    more = ("-o", "t.onnx", "--epochs", 1, "--val", 0)
    code, _, err = run(capsys, "train", "m.onnx", "--data", "d.csv", *more)
    assert code == 2
    assert "header" in err or "expected a first line that names the columns" in err


# ---- pictures as their camera was held


@pytest.mark.parametrize("ending", ["jpg", "png", "webp", "tiff"])
def test_pictures_are_turned_as_their_exif_says(ending, tmp_path, monkeypatch, capsys):
    image = pytest.importorskip("PIL.Image")
    turned = pytest.importorskip("PIL.ImageOps").exif_transpose
    monkeypatch.chdir(tmp_path)
    corners = np.zeros((16, 16, 3), np.uint8)
    corners[:8, :8], corners[:8, 8:], corners[8:, :8] = 255, 160, 80
    files = []
    for orientation in range(1, 9):
        exif = image.Exif()
        exif[0x0112] = orientation
        files.append(Path("p", "ab"[orientation % 2], f"{orientation}.{ending}"))
        files[-1].parent.mkdir(parents=True, exist_ok=True)
        image.fromarray(corners).save(files[-1], exif=exif)
    onnx.save(onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[N, 3, 16, 16] x) => (float[N, 768] y) { y = Flatten(x) }"""), "m.onnx")  # fmt: skip
    assert run(capsys, "predict", "m.onnx", "--data", "p", "-o", "o.npz")[0] == 0
    found = np.load("o.npz")["y"]
    for file, row in zip(sorted(files), found, strict=True):
        wanted = np.asarray(turned(image.open(file))).transpose(2, 0, 1).reshape(-1) / 255
        np.testing.assert_allclose(row, wanted, atol=1e-5, err_msg=str(file))
