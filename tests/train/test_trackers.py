"""Trackers, by packages that write down what they are told; tests/live has the real ones."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import types

import pytest
from job.problem import run, write_problem

from onnxgrad.errors import ConfigError
from onnxgrad.train import trackers


class Said(list):
    """Writes down every call as (name, arguments)."""

    def record(self, name):
        def call(*arguments, **more):
            self.append((name, arguments, more))
            return types.SimpleNamespace(
                log=self.record("run.log"), finish=self.record("run.finish")
            )

        return call


def pretend(monkeypatch, package: str, *functions: str) -> Said:
    said = Said()
    module = types.ModuleType(package)
    module.__spec__ = importlib.machinery.ModuleSpec(package, None)
    for name in functions:
        setattr(module, name, said.record(name))
    monkeypatch.setitem(sys.modules, package, module)
    return said


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_problem()
    return tmp_path


TRAIN = ("train", "model.onnx", "--data", "d.npz", "-o", "t.onnx", "--epochs", 2, "--quiet")


def test_mlflow_gets_settings_and_numbers_by_step(folder, capsys, monkeypatch):
    functions = ("set_experiment", "start_run", "log_params", "log_metrics", "end_run")
    said = pretend(monkeypatch, "mlflow", *functions)
    assert run(capsys, *TRAIN, "--report-to", "mlflow")[0] == 0
    names = [name for name, _, _ in said]
    assert names == [
        "set_experiment",
        "start_run",
        "log_params",
        "log_metrics",
        "log_metrics",
        "end_run",
    ]
    assert said[1][2] == {"run_name": "model-1"}
    assert said[2][1][0]["lr"] == 1e-3
    assert said[2][1][0]["model"] == "model.onnx"
    (numbers,), _ = said[3][1:]
    assert set(numbers) == {"epoch", "loss", "val_loss", "val_accuracy", "lr"}
    assert all(isinstance(v, float) for v in numbers.values())
    assert [said[i][2]["step"] for i in (3, 4)] == [3, 6]


def test_weights_and_biases_and_trackio_at_once(folder, capsys, monkeypatch):
    wandb = pretend(monkeypatch, "wandb", "init")
    trackio = pretend(monkeypatch, "trackio", "init", "log", "finish")
    assert run(capsys, *TRAIN, "--report-to", "wandb, trackio")[0] == 0
    assert [n for n, _, _ in wandb] == ["init", "run.log", "run.log", "run.finish"]
    assert [n for n, _, _ in trackio] == ["init", "log", "log", "finish"]
    assert wandb[0][2]["project"] == trackio[0][2]["project"] == "onnxgrad"
    assert wandb[0][2]["config"]["epochs"] == 2
    assert wandb[1][1:] == trackio[1][1:]


def test_steps_are_sent_now_and_then(folder, capsys, monkeypatch):
    said = pretend(monkeypatch, "trackio", "init", "log", "finish")
    monkeypatch.setattr(trackers.Tracker.__init__, "__defaults__", ("onnxgrad", None, None, 2))
    assert run(capsys, *TRAIN, "--report-to", "trackio")[0] == 0
    steps = [more["step"] for _, (numbers,), more in said[1:-1] if "step/loss" in numbers]
    assert steps == [2, 4, 6]


def test_a_run_that_breaks_is_closed(folder, capsys, monkeypatch):
    said = pretend(monkeypatch, "trackio", "init", "log", "finish")
    code, _, _ = run(capsys, *TRAIN, "--report-to", "trackio", "--lr", 1e39, "--optimizer", "sgd")
    assert code == 4
    assert said[-1][0] == "finish"


def test_an_unknown_tracker_and_a_missing_package_are_refused_before_anything_runs(
    folder, capsys, monkeypatch
):
    code, _, err = run(capsys, *TRAIN, "--report-to", "wandb,neptune")
    expected = "--report-to is 'neptune', expected some of mlflow, wandb, trackio, tensorboard"
    if importlib.util.find_spec("wandb") is not None:
        assert (code, err) == (2, f"onnxgrad: {expected}\n")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name, package in trackers.PACKAGES.items():
        with pytest.raises(ConfigError, match=f"{name} needs {package}: pip install {package}"):
            trackers.check([name])
    assert not (folder / "runs").exists()


def test_trackers_come_in_the_order_of_their_names(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    for package in ("mlflow", "wandb", "trackio"):
        pretend(monkeypatch, package, "init", "log", "start_run")
    made = trackers.named(["trackio", "wandb", "mlflow"], tmp_path, "run", {"lr": 0.1})
    assert [type(t).__name__ for t in made] == ["Trackio", "WandB", "MLflow"]
    with pytest.raises(ConfigError, match="--report-to is 'neptune', expected some of mlflow"):
        trackers.named(["wandb", "neptune"], tmp_path, "run", {})
    assert trackers.named([], tmp_path, "run", {}) == []


def test_off_unless_asked_for(folder, capsys, monkeypatch):
    said = [
        pretend(monkeypatch, name, "init", "start_run") for name in ("wandb", "mlflow", "trackio")
    ]
    assert run(capsys, *TRAIN)[0] == 0
    assert said == [[], [], []]


def test_a_tracker_that_opens_no_run_is_no_bug_of_ours(folder, capsys, monkeypatch):
    pretend(monkeypatch, "trackio", "log", "finish")
    sys.modules["trackio"].init = lambda **_: 1 / 0
    code, _, err = run(capsys, *TRAIN, "--report-to", "trackio")
    assert (code, err) == (2, "onnxgrad: Trackio could not open a run: division by zero\n")


def test_a_tracker_that_is_lost_does_not_stop_the_training(folder, capsys, monkeypatch):
    said = pretend(monkeypatch, "trackio", "init", "finish")
    sys.modules["trackio"].log = lambda *_, **__: 1 / 0
    with pytest.warns(
        UserWarning, match="Trackio gets no more numbers: division by zero; the training goes on"
    ):
        assert run(capsys, *TRAIN, "--report-to", "trackio")[0] == 0
    assert (folder / "t.onnx").exists()
    assert [name for name, *_ in said] == ["init"]
