"""What a person asks of a Trainer besides training: progress, curves, gradients, a learning rate, one made anew."""

from __future__ import annotations

import io
import re
import types
import xml.etree.ElementTree as ET

import numpy as np
import onnx
import pytest
from train import problems

import onnxgrad
from onnxgrad.charts import Chart, Picture
from onnxgrad.errors import CheckpointError, DataError
from onnxgrad.train import lr_finder, show
from onnxgrad.train.callbacks import Checkpoint


def trainer(**more):
    settings = {"loss": "cross_entropy", "optimizer": "sgd", "lr": 0.1, "metrics": "accuracy"}
    return onnxgrad.Trainer(problems.mlp().model(), **{**settings, **more})


def data():
    return tuple(np.concatenate(part) for part in zip(*problems.mlp().batches[:8], strict=True))


# ---- progress


def test_verbose_prints_a_line_per_epoch_where_no_terminal_is(capsys):
    trainer().fit(*data(), validation=0.25, epochs=2, verbose=1)
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 2
    assert re.fullmatch(
        r"epoch 2/2  loss \S+ +val_loss \S+ +val_accuracy \S+ +[\d,]+ rows/s", out[1]
    )


def test_nothing_is_printed_unless_asked(capsys):
    trainer().fit(*data(), epochs=1)
    assert capsys.readouterr().out == ""


def test_a_terminal_has_a_bar(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("TERM", "xterm")
    trainer().fit(*data(), epochs=3, verbose=1)
    assert "━" in screen.getvalue()
    lines = re.findall(r"epoch (\d)/3  loss [^\n\x1b]*rows/s *\r?\n", screen.getvalue())
    assert lines == ["1", "2", "3"], "one stays for each epoch"


def test_a_bar_writes_names_as_they_are():
    """Metrics may be called anything; before and behind the bar, too."""
    from rich.console import Console

    bar = show.TerminalBar(Console(file=io.StringIO(), width=60))
    bar.write("epoch 1/1  [red] 3")
    assert bar.console.file.getvalue() == "epoch 1/1  [red] 3\n"


class Loop:
    """What a line needs of a loop."""

    batch_size, epochs = 8, 12
    progress = types.SimpleNamespace(epoch=3)


def test_a_line_has_what_fits():
    logs = {"epoch": 3, "step": 9, "lr": 0.1, "loss": 0.25, "val_loss": 1.5, "val_accuracy": 0.75}
    lines = show.Lines(width=80)
    assert lines.line(Loop, logs, 1234.5) == (
        "epoch  3/12  loss 0.25     val_loss 1.5      val_accuracy 0.75     1,234 rows/s"
    )
    assert (
        lines.line(Loop, logs, 0)
        == "epoch  3/12  loss 0.25     val_loss 1.5      val_accuracy 0.75"
    )
    assert show.Lines(width=30).line(Loop, logs, 5) == "epoch  3/12  loss 0.25"
    assert show.Lines(width=22).line(Loop, logs, 5) == "epoch  3/12  loss 0.25"
    assert show.Lines(width=21).line(Loop, logs, 5) == "epoch  3/12  5 rows/s"


def test_the_numbers_of_the_moment():
    lines = show.Lines()
    lines.loss, lines.pace, lines.metric = 0.123456, 0.004, "  accuracy 0.5"
    assert lines.now(Loop) == ("epoch 4/12", "loss 0.1235  accuracy 0.5  2,000 rows/s")
    assert show.smoothed(float("nan"), 3.0) == 3.0
    assert show.smoothed(1.0, 2.0) == pytest.approx(show.SMOOTHING + 2 * (1 - show.SMOOTHING))


def test_a_wrong_verbose_is_refused():
    with pytest.raises(ValueError, match=r"verbose is 'loud', expected 0, 1 \(a bar\) or 2"):
        trainer().fit(*data(), verbose="loud")


def test_a_notebook_has_a_bar_that_stays(monkeypatch):
    """IPython's own interface, as far as it is used; tests/live runs a real notebook."""
    drawn = []
    handle = types.SimpleNamespace(update=drawn.append)
    display = types.SimpleNamespace(HTML=str, display=lambda html, display_id: handle)
    ipython = types.SimpleNamespace(
        get_ipython=lambda: types.SimpleNamespace(kernel=1), display=display
    )
    monkeypatch.setitem(__import__("sys").modules, "IPython", ipython)
    monkeypatch.setitem(__import__("sys").modules, "IPython.display", display)
    monkeypatch.setattr(show, "REDRAW_SECONDS", 0)
    x, y = data()
    trainer().fit(x, y, epochs=2, batch_size=len(x) // 2, verbose=1)
    assert "<progress style='width:16em' max='4' value='1'>" in drawn[0]
    assert "epoch 1/2 loss" in drawn[0]
    last = drawn[-1]
    assert "max='4' value='4'" in last
    assert len(re.findall(r"epoch \d/2  loss", last)) == 2


# ---- curves


def test_the_curves_of_a_history_are_one_picture(tmp_path):
    history = trainer().fit(*data(), validation=0.25, epochs=3)
    picture = history.plot(tmp_path / "curves.svg")
    root = ET.parse(tmp_path / "curves.svg").getroot()
    assert root.tag.endswith("svg")
    assert str(picture) == picture._repr_svg_() == (tmp_path / "curves.svg").read_text()
    titles = [e.text for e in root.iter() if e.get("class") == "title"]
    assert titles == ["loss by epoch", "accuracy by epoch", "learning rate by epoch"]
    loss = next(e for e in root if e.get("class") == "chart")
    lines = [e.get("points").split() for e in loss if e.get("class") == "line"]
    assert [len(line) for line in lines] == [3, 3]  # loss and val_loss, three epochs each
    falls = history["loss"][0] > history["loss"][-1]
    first, last = (float(p.split(",")[1]) for p in (lines[0][0], lines[0][-1]))
    assert falls == (last > first)  # pixels count from the top


def test_a_chart_leaves_out_what_it_cannot_draw_and_keeps_names_as_text():
    nan, inf = float("nan"), float("inf")
    chart = Chart("<b>", {"<script>": [(0, 1), (1, nan), (2, inf), (3, 1)], "gone": [(nan, 1)]})
    svg = str(Picture([chart]))
    root = ET.fromstring(svg)
    assert "<script>" not in svg
    line = next(e for e in root.iter() if e.get("class") == "line")
    assert len(line.get("points").split()) == 2
    assert not re.search(r"\bnan\b|\binf\b", svg)
    assert Picture([Chart("empty", {"a": [(nan, nan)]})]).charts == []


# ---- gradients


def test_gradients_of_a_batch_are_those_of_the_step_and_train_nothing():
    x, y = data()
    one = trainer()
    assert one.gradients() == {}
    before = one.get_weights()
    found = one.gradients(x, y)
    for name, array in one.get_weights().items():
        np.testing.assert_array_equal(array, before[name])
    one.step(x, y)
    for name, gradient in found.items():
        np.testing.assert_array_equal(one.gradients()[name], gradient)
        np.testing.assert_allclose(
            one.get_weights()[name], before[name] - np.float32(0.1) * gradient, rtol=1e-6, atol=1e-7
        )


# ---- a learning rate


def test_the_finder_suggests_a_rate_and_puts_everything_back(tmp_path):
    x, y = data()
    one = trainer(optimizer="adamw")
    one.fit(x, y, epochs=1)
    before, optimizer, steps = one.get_weights(), one.state().copied().optimizer_state, one.steps
    curve = one.find_lr(x, y, steps=60)
    assert one.steps == steps
    for name, array in before.items():
        np.testing.assert_array_equal(one.get_weights()[name], array)
    for name, array in optimizer.items():
        np.testing.assert_array_equal(one.state().optimizer_state[name], array)
    assert 1e-7 < curve.suggestion < curve.limit
    assert str(curve).startswith(f"lr {curve.suggestion:.1e}")
    curve.plot(tmp_path / "lr.svg")
    assert f">{curve.suggestion:.1e}<" in (tmp_path / "lr.svg").read_text()


def test_the_finder_stops_where_the_loss_breaks():
    """The loss of a line under plain gradient descent breaks where lr·λ > 2."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        line (float[N, 1] x) => (float[N, 1] y) <float[1, 1] w = {0}> { y = MatMul(x, w) }""")
    x = np.ones((64, 1), np.float32)
    line = onnxgrad.Trainer(model, loss="mse", optimizer="sgd", lr=0.1)
    curve = line.find_lr(x, 3 * x, low=1e-4, high=1e4, steps=100)
    assert curve.rates[-1] < 1e3
    assert 1e-3 < curve.suggestion < 1  # λ = 2, so that 1 is where it begins to break


RATES = [10.0 ** (n / 10) for n in range(-30, 0)]  # 30: three of them are looked at for a slope


def test_the_finder_judges_a_curve():
    """Down steepest in the middle, the least later, then up."""
    losses = [1.0] * 10 + [0.9, 0.8, 0.5, 0.2, 0.15, 0.12, 0.11, 0.1, 0.2, 0.4] + [1.0] * 10
    found = lr_finder._judged(RATES, losses)
    assert found.suggestion == RATES[11]  # from 1 two before to 0.2 two behind
    assert found.limit == RATES[17]
    assert (found.rates, found.losses) == (RATES, losses)


def test_the_finder_suggests_nothing_where_nothing_falls():
    up = [1.0 + 0.01 * n for n in range(30)]
    found = lr_finder._judged(RATES, up)
    assert (found.suggestion, found.limit) == (None, RATES[0])
    hardly = [1.0 - 0.002 * n for n in range(30)]  # 0.008 over four steps, and 0.01 is asked for
    assert lr_finder._judged(RATES, hardly).suggestion is None
    assert lr_finder._judged(RATES, [1.0 - 0.003 * n for n in range(30)]).suggestion is not None


def test_the_finder_refuses_what_means_nothing():
    x, y = data()
    with pytest.raises(ValueError, match="0 < low < high"):
        trainer().find_lr(x, y, low=1, high=0.1)
    with pytest.raises(ValueError, match="steps is 3, expected at least 10"):
        trainer().find_lr(x, y, steps=3)
    with pytest.raises(DataError, match="no batches"):
        trainer().find_lr(lambda epoch: [])


# ---- made anew from a checkpoint


def test_a_trainer_is_made_anew_from_its_checkpoint(tmp_path):
    x, y = data()
    onnx.save(problems.mlp().model(), tmp_path / "m.onnx")
    one = onnxgrad.Trainer(
        tmp_path / "m.onnx",
        loss=onnxgrad.losses.CrossEntropy(label_smoothing=0.1),
        optimizer=onnxgrad.optimizers.SGD(momentum=0.9),
        lr=0.05,
        schedule=onnxgrad.schedules.Cosine(total=40),
        clip_norm=1.0,
        groups=[{"params": "b*", "weight_decay": 0.1}],
        metrics="accuracy",
        seed=3,
    )
    one.fit(x, y, epochs=2, callbacks=[Checkpoint(tmp_path / "run" / "checkpoints")])
    for path in (tmp_path / "run", tmp_path / "run" / "checkpoints"):
        two = onnxgrad.Trainer.from_checkpoint(path)
        assert (two.seed, two.optimizer, two.steps) == (3, one.optimizer, one.steps)
        assert two.evaluate(x, y) == one.evaluate(x, y)
    one.step(x, y)
    two.step(x, y)
    for name, array in one.get_weights().items():
        np.testing.assert_array_equal(two.get_weights()[name], array)


def test_what_a_checkpoint_cannot_hold_is_asked_for(tmp_path):
    model = problems.mlp().model()
    one = onnxgrad.Trainer(model, loss=lambda op, o, t: op.ReduceMean(op.Mul(o, t), keepdims=0))
    one.save_checkpoint(tmp_path / "c")
    with pytest.raises(CheckpointError, match="give model=…, loss=… again"):
        onnxgrad.Trainer.from_checkpoint(tmp_path / "c")


def test_a_checkpoint_that_names_a_foreign_class_makes_nothing(tmp_path):
    one = trainer()
    one.save_checkpoint(tmp_path / "c")
    state = onnxgrad.train.files.checkpoint.read(tmp_path / "c")
    state.recipe["settings"]["loss"] = {"is": "Popen", "args": "true"}
    onnxgrad.train.files.checkpoint.save(state, tmp_path / "d")
    with pytest.raises(CheckpointError, match="names 'Popen', which onnxgrad does not have"):
        onnxgrad.Trainer.from_checkpoint(tmp_path / "d", model=problems.mlp().model())


def test_a_schedule_that_needs_a_length_says_so_in_a_loop_of_ones_own():
    with pytest.raises(ValueError, match="Cosine needs the number of steps: give total="):
        trainer(schedule="cosine").step(*data())
