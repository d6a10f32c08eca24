"""A step file does what the Trainer does, in a plain session, with standard operators only."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from safetensors.numpy import save_file
from train import problems

import onnxgrad
from onnxgrad.cli import main
from onnxgrad.demo import models
from onnxgrad.errors import ExportError, FileError
from onnxgrad.stepfile import merge, write_step
from onnxgrad.stepfile.graph import new_name

STEPS = 20


class Loop:
    """Trains with the files as a program on a device would."""

    def __init__(self, files, seed: int = 0):
        self.about, self.seed, self.done = files.description, seed, 0
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(str(files.step), options)
        initial = onnxruntime.InferenceSession(str(files.initial), options)
        names = [o.name for o in initial.get_outputs()]
        self.values = dict(zip(names, initial.run(None, {}), strict=True))

    def step(self, batch: dict, lr: float) -> float:
        feeds = {**batch, **self.values}
        feeds["lr"] = np.array(lr, np.float32)
        feeds["step"] = np.array(self.done + 1)
        if "dropout/key" in self.about.settings:
            feeds["dropout/key"] = np.array([self.seed, self.done])
        names = [o.name for o in self.session.get_outputs()]
        results = dict(zip(names, self.session.run(None, feeds), strict=True))
        self.values = {name: results[new_name(name)] for name in self.values}
        self.done += 1
        return float(results[self.about.loss])


SETTINGS = {
    "adamw": dict(optimizer="adamw"),
    "adam": dict(optimizer=onnxgrad.train.optimizers.Adam(weight_decay=0.1)),
    "sgd": dict(optimizer="sgd"),
    "nesterov": dict(
        optimizer=onnxgrad.train.optimizers.SGD(momentum=0.9, nesterov=True, weight_decay=0.01)
    ),
    "dampening": dict(optimizer=onnxgrad.train.optimizers.SGD(momentum=0.9, dampening=0.5)),
    "clip_norm": dict(optimizer="sgd", clip_norm=0.1),
    "clip_value": dict(optimizer="sgd", clip_value=1e-3),
    "dropout": dict(optimizer="adamw", dropout=0.3),
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("make", [problems.mlp, problems.cnn], ids=["mlp", "cnn"])
def test_the_same_curve_as_the_trainer(make, settings, tmp_path):
    problem = make()
    files = write_step(
        problem.model(), tmp_path / "step.onnx", loss="cross_entropy", lr=problem.lr, **settings
    )
    trainer = onnxgrad.Trainer(problem.model(), "cross_entropy", lr=problem.lr, **settings)
    loop = Loop(files)
    for x, y in problem.batches[:STEPS]:
        expected = trainer.step(x, y)["loss"]
        assert loop.step({"x": x, "target": y}, problem.lr) == pytest.approx(expected, abs=1e-6)
    for name, weight in trainer.get_weights().items():
        np.testing.assert_allclose(loop.values[name], weight, atol=2e-6, err_msg=name)


def test_only_standard_operators_unless_fused(tmp_path):
    problem = problems.cnn()
    for fused in (False, True):
        files = write_step(
            problem.model(), tmp_path / "step.onnx", loss="cross_entropy", fused=fused
        )
        domains = {n.domain for n in onnx.load(files.step).graph.node}
        assert domains == ({"", "com.microsoft"} if fused else {""})
    described = {p.key: p.value for p in onnx.load(files.step).metadata_props}
    assert json.loads(described["onnxgrad.step"])["parameters"] == files.description.parameters


def test_the_state_takes_no_space(tmp_path):
    problem = problems.mlp()
    files = write_step(problem.model(), tmp_path / "step.onnx", loss="cross_entropy")
    weights = sum(w.nbytes for w in problem.weights.values())
    assert files.initial.stat().st_size < weights + 6000
    assert len(files.description.state) == 2 * len(problem.weights)


def test_evaluation_takes_the_parameters(tmp_path):
    problem = problems.cnn()
    files = write_step(problem.model(), tmp_path / "step.onnx", loss="cross_entropy")
    loop = Loop(files)
    x, y = problem.batches[0]
    loop.step({"x": x, "target": y}, 1e-3)
    session = onnxruntime.InferenceSession(str(files.evaluate))
    names = [i.name for i in session.get_inputs()]
    assert set(names) == {"x", *files.description.parameters, *files.description.statistics}
    logits = session.run(None, {"x": x, **{n: loop.values[n] for n in names if n != "x"}})[0]
    kept = {n: loop.values[n] for n in names if n != "x"}
    save_file(kept, tmp_path / "trained.safetensors")
    onnx.save(problem.model(), tmp_path / "model.onnx")
    merge(tmp_path / "model.onnx", tmp_path / "trained.safetensors", tmp_path / "tuned.onnx")
    tuned = onnxruntime.InferenceSession(str(tmp_path / "tuned.onnx"))
    np.testing.assert_allclose(tuned.run(None, {"x": x})[0], logits, rtol=1e-5, atol=1e-6)


def test_merge_refuses_what_is_not_the_models(tmp_path):
    problem = problems.mlp()
    onnx.save(problem.model(), tmp_path / "model.onnx")
    paths = (tmp_path / "model.onnx", tmp_path / "p.safetensors", tmp_path / "tuned.onnx")
    save_file({"nothing": np.zeros(3, np.float32)}, paths[1])
    with pytest.raises(ExportError, match="has 'nothing', which the model does not have"):
        merge(*paths)
    save_file({"b1": np.zeros(3, np.float32)}, paths[1])
    with pytest.raises(ExportError, match=r"'b1' has shape \[3\], expected \[32\]"):
        merge(*paths)
    paths[1].write_bytes(b"no safetensors")
    with pytest.raises(ExportError, match="cannot be read as"):
        merge(*paths)
    assert not paths[2].exists()


NODE = shutil.which("node")


def test_the_command_writes_a_program_that_node_can_parse(tmp_path, capsys):
    models.write("cnn", tmp_path / "model.onnx")
    command = ["step", str(tmp_path / "model.onnx"), "--loss", "cross_entropy", "--lr", "0.003"]
    assert main([*command, "-o", str(tmp_path / "step.onnx"), "--emit", "js"]) == 0
    assert "step.train.mjs" in capsys.readouterr().out.replace("\n", "")
    text = (tmp_path / "step.train.mjs").read_text()
    assert "@" not in text.replace("onnxruntime", "")
    if NODE:
        subprocess.run([NODE, "--check", str(tmp_path / "step.train.mjs")], check=True)


def test_nothing_that_is_read_is_written_over(tmp_path):
    problem, path = problems.mlp(), tmp_path / "model.onnx"
    onnx.save(problem.model(), path)
    before = path.read_bytes()
    save_file({"b1": problem.weights["b1"]}, tmp_path / "p.safetensors")
    with pytest.raises(FileError, match="is read by this run"):
        write_step(path, path, loss="cross_entropy")
    with pytest.raises(FileError, match="is read by this run"):
        merge(path, tmp_path / "p.safetensors", path)
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx", "p.safetensors"]


@pytest.mark.parametrize("limits", [dict(clip_norm=-1.0), dict(clip_value=0.0)], ids=str)
def test_limits_below_zero_are_refused(limits, tmp_path):
    with pytest.raises(ValueError, match="expected a number > 0"):
        write_step(problems.mlp().model(), tmp_path / "s.onnx", loss="cross_entropy", **limits)
    assert not list(tmp_path.iterdir())


LINE = """<ir_version: 8, opset_import: ["" : 17]>
    line (float[N, 2] x) => (float[N, 1] y) <float[2, 1] w = {1, -1}, float[1] b = {0.5}>
    { p = MatMul(x, w)  y = Add(p, b) }"""


def test_what_a_step_file_says_of_itself(tmp_path):
    line = onnx.parser.parse_model(LINE)
    files = write_step(line, tmp_path / "step.onnx", loss="mse", optimizer="sgd", lr=0.25)
    assert files.description.as_dict() == {
        "batch": ["x"], "targets": ["target"], "parameters": ["w", "b"], "statistics": [], "state": [],
        "settings": ["lr", "step"], "loss": "loss", "lr": 0.25, "version": 1,
    }  # fmt: skip
    files = write_step(line, tmp_path / "step.onnx", loss="mse", trainable=["w"])
    assert files.description.as_dict() == {
        "batch": ["x"], "targets": ["target"], "parameters": ["w"], "statistics": [],
        "state": ["w.exp_avg", "w.exp_avg_sq"], "settings": ["lr", "step"], "loss": "loss", "lr": 0.001, "version": 1,
    }  # fmt: skip
