"""fit, evaluate, predict: data in every form, metrics, callbacks, history."""

from __future__ import annotations

import csv
import json
import math

import numpy as np
import onnxruntime
import pytest
from train import problems

import onnxgrad
from onnxgrad import Trainer
from onnxgrad.errors import DivergedError
from onnxgrad.train import callbacks, metrics
from onnxgrad.train.losses import Target


def data(count: int = 8) -> tuple[np.ndarray, np.ndarray]:
    batches = problems.mlp().batches[:count]
    return tuple(np.concatenate(parts) for parts in zip(*batches, strict=True))


def make(**settings) -> Trainer:
    settings.setdefault("loss", "cross_entropy")
    settings.setdefault("lr", 1e-2)
    return Trainer(problems.mlp().model(), **settings)


def flat(trainer: Trainer) -> bytes:
    return trainer.get_weights(flat=True).tobytes()


# ---- data


class Watch(callbacks.Callback):
    """Keeps the order of the rows of the last epoch's training and validation."""

    def on_epoch_end(self, loop, logs):
        self.rows = {
            name: np.concatenate([b.arrays["x"] for b in part.epoch(loop.progress.epoch)])
            for name, part in (("data", loop.data), ("validation", loop.validation))
        }


@pytest.mark.parametrize("form", ["pair", "batches"])
def test_what_validates_comes_in_its_own_order(form):
    x, y = data(2)
    watch, kept = Watch(), (x[:20] + 1, y[:20])
    given = kept if form == "pair" else [{"x": kept[0], "target": kept[1]}]
    make().fit(x, y, validation=given, epochs=1, batch_size=8, callbacks=[watch])
    np.testing.assert_array_equal(watch.rows["validation"], kept[0])
    assert not np.array_equal(watch.rows["data"], x)
    np.testing.assert_array_equal(np.sort(watch.rows["data"], 0), np.sort(x, 0))


def test_an_epoch_and_a_run_of_so_many_steps():
    x, y = data(2)  # 48 rows, 6 batches
    for more, epochs, steps in (
        ({}, 3, 18), ({"steps_per_epoch": 4}, 3, 12), ({"max_steps": 7}, 1, 7),
        ({"steps_per_epoch": 4, "max_steps": 7}, 1, 7), ({"max_time": 0.0}, 0, 1),
    ):  # fmt: skip
        trainer = make()
        history = trainer.fit(x, y, epochs=3, batch_size=8, **more)
        assert (len(history.epochs), trainer.steps) == (epochs, steps), more


def test_it_learns():
    x, y = data(40)
    trainer = make(metrics="accuracy,top2,f1,perplexity")
    assert trainer.evaluate(x, y)["accuracy"] < 0.5
    history = trainer.fit(x, y, validation=0.2, epochs=2)
    assert history["val_accuracy"][-1] > 0.9
    assert set(history.history) == {
        "epoch", "step", "loss", "lr", "val_loss", "val_accuracy", "val_top2", "val_f1",
        "val_perplexity",
    }  # fmt: skip
    assert history["val_perplexity"][-1] == pytest.approx(math.exp(history["val_loss"][-1]))


FORMS = {
    "dicts": lambda x, y: ({"x": x}, {"target": y}),
    "one dict": lambda x, y: ({"x": x, "target": y},),
    "lists": lambda x, y: (x.tolist(), y.tolist()),
    "double and int32": lambda x, y: (x.astype(np.float64), y.astype(np.int32)),
    "strided": lambda x, y: (np.repeat(x, 2, axis=1)[:, ::2], y),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_data_gives_the_same_bits(form):
    x, y = data(3)
    expected, got = make(), make()
    expected.fit(x, y, batch_size=16)
    if form == "lists":
        x, y = np.array(x.tolist()), np.array(y.tolist())
        got.fit(x, y, batch_size=16)
    else:
        got.fit(*FORMS[form](x, y), batch_size=16)
    assert flat(got) == flat(expected)


@pytest.mark.parametrize("kind", ["list of pairs", "list of dicts", "function", "steps"])
def test_streams_of_batches(kind):
    pairs = problems.mlp().batches[:6]
    expected, got = make(), make()
    for _ in range(2):
        for x, y in pairs:
            expected.step(x, y)
    if kind == "list of pairs":
        got.fit(pairs, epochs=2)
    elif kind == "list of dicts":
        got.fit([{"x": x, "target": y} for x, y in pairs], epochs=2)
    elif kind == "function":
        got.fit(lambda epoch: iter(pairs), epochs=2)
    else:
        got.fit(lambda epoch: iter(pairs * 2), epochs=2, steps_per_epoch=6)
    assert flat(got) == flat(expected)


def test_the_last_short_batch_is_used_and_sizes_may_change():
    trainer = make()
    x, y = data(2)
    trainer.fit(x[:41], y[:41], batch_size=16)
    assert trainer.steps == 3
    for size in (1, 48, 5):
        trainer.step(x[:size], y[:size])


def test_memory_mapped_arrays(tmp_path):
    x, y = data(3)
    np.save(tmp_path / "x.npy", x)
    expected, got = make(), make()
    expected.fit(x, y)
    got.fit(np.load(tmp_path / "x.npy", mmap_mode="r"), y)
    assert flat(got) == flat(expected)


def test_1_and_2_threads_give_the_same_bits():
    results = []
    before = onnxgrad.get_num_threads()
    for threads in (1, 2):
        problem = problems.transformer()
        trainer = Trainer(problem.model(), loss="cross_entropy", threads=threads)
        for x, y in problem.batches[:10]:
            trainer.step(x, y)
        results.append(flat(trainer))
    onnxgrad.set_num_threads(before)
    assert results[0] == results[1]


def test_predictions_are_those_of_the_current_weights():
    x, y = data(1)
    trainer = make()
    before = trainer.predict(x, batch_size=7)
    trainer.step(x, y)
    after = trainer.predict(x)
    assert not np.array_equal(before, after)
    session = onnxruntime.InferenceSession(problems.mlp().model().SerializeToString())
    np.testing.assert_allclose(before, session.run(None, {"x": x})[0], atol=1e-6)


def test_weights_in_and_out():
    x, y = data(1)
    a, b, c = make(), make(), make()
    a.step(x, y)
    b.set_weights(a.get_weights())
    c.set_weights(a.get_weights(flat=True))
    assert flat(a) == flat(b) == flat(c)


# ---- which weights are trained


TRAINABLE = {
    "all": ["w1", "b1", "w2", "b2", "w3", "b3"],
    "head": ["w3", "b3"],
    "w*": ["w1", "w2", "w3"],
    "[wb][12]": ["w1", "b1", "w2", "b2"],
    "(w|b)3": ["w3", "b3"],
}


@pytest.mark.parametrize("pattern", TRAINABLE)
def test_trainable(pattern):
    trainer = make(trainable=pattern)
    assert list(trainer.get_weights()) == TRAINABLE[pattern]


def test_trainable_as_a_list():
    assert list(make(trainable=["b1", "w3"]).get_weights()) == ["b1", "w3"]


def test_weights_in_constant_nodes_are_trained(tmp_path):
    problem = problems.mlp()
    model = problem.model()
    kept = [t for t in model.graph.initializer if t.name != "w3"]
    moved = next(t for t in model.graph.initializer if t.name == "w3")
    model.graph.node.insert(0, problems.node("Constant", [], ["w3"], value=moved))
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    trainer, expected = Trainer(model, loss="cross_entropy"), make(lr=None)
    for x, y in problem.batches[:3]:
        trainer.step(x, y)
        expected.step(x, y)
    np.testing.assert_array_equal(trainer.get_weights()["w3"], expected.get_weights()["w3"])
    trainer.save(tmp_path / "m.onnx")
    x = problem.batches[0][0]
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected.predict(x), atol=1e-5)


# ---- metrics


def value_of(metric: str, prediction, target, **spec) -> float:
    (m,) = metrics.resolve(metric)
    state = m.start()
    target = np.asarray(target)
    spec = Target("y", target.dtype, None, **spec)
    half = len(target) // 2
    for part in (slice(0, half), slice(half, None)):
        m.add(state, np.asarray(prediction)[part], target[part], spec)
    return m.result(state, {"loss": 2.0})


SCORES = [[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]


def test_metrics_of_classes():
    labels = [1, 0, 0, 1]
    assert value_of("accuracy", SCORES, labels, axis=1) == 0.5
    assert value_of("top2", SCORES, labels, axis=1) == 0.75
    # class 0: 1 hit of 2 chosen and 2 there; class 1: 1 of 1 and 2; class 2: 0
    assert value_of("f1", SCORES, labels, axis=1) == pytest.approx((0.5 + 2 / 3 + 0) / 3)
    assert value_of("accuracy", SCORES, [1, 0, -1, -1], axis=1, ignore=-1) == 1.0


def test_f1_is_the_mean_over_classes_that_somebody_has_or_names():
    wide = [
        [*row, 0.0, 0.0] for row in SCORES[:2]
    ]  # five classes: only 0 and 1 are there or chosen
    assert value_of("f1", wide, [1, 0], axis=1) == 1.0
    assert value_of("f1", wide, [1, 4], axis=1) == pytest.approx(
        (1 + 0 + 0) / 3
    )  # 1, 0 chosen, 4 there


def test_metrics_of_numbers():
    prediction, target = [1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 3.0, 5.0]
    assert value_of("mae", prediction, target) == 0.5
    assert value_of("r2", prediction, target) == pytest.approx(1 - 2 / 8)
    assert value_of("accuracy", [-1.0, 2.0, 3.0, -1], [0.0, 1.0, 0.0, 0.0]) == 0.75
    assert value_of("f1", [-1.0, 2.0, 3.0, -1], [0.0, 1.0, 0.0, 0.0]) == pytest.approx(2 / 3)


def test_a_function_as_metric():
    def worst(prediction, target):
        return float(np.abs(prediction.argmax(1) - target).max())

    x, y = data(2)
    trainer = make(metrics=worst)
    assert trainer.evaluate(x, y, batch_size=5)["worst"] == worst(trainer.predict(x), y)


def test_evaluation_is_the_mean_over_rows():
    x, y = data(1)
    trainer = make()
    whole = trainer.evaluate(x, y, batch_size=24)["loss"]
    assert trainer.evaluate(x, y, batch_size=7)["loss"] == pytest.approx(whole, rel=1e-6)


# ---- callbacks


def test_early_stopping_returns_to_the_best_weights():
    x, y = data(2)
    trainer = make(lr=0.5)
    history = trainer.fit(
        x, y, validation=data(4), epochs=50, callbacks=[callbacks.EarlyStopping(patience=2)]
    )
    assert history.stopped == "val_loss did not improve for 2 epochs"
    best = min(history["val_loss"])
    assert trainer.evaluate(*data(4))["loss"] == pytest.approx(best)


def test_logs(tmp_path):
    x, y = data(2)
    logs = [callbacks.CSVLogger(tmp_path / "r.csv"), callbacks.JSONLLogger(tmp_path / "r.jsonl")]
    history = make().fit(x, y, validation=0.25, epochs=3, callbacks=logs)
    rows = list(csv.DictReader((tmp_path / "r.csv").open()))
    assert [float(r["val_loss"]) for r in rows] == history["val_loss"]
    lines = (tmp_path / "r.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == history.epochs


def test_the_best_checkpoint_is_the_best_epoch(tmp_path):
    x, y = data(2)
    trainer = make(lr=0.5, metrics="accuracy")
    watch = callbacks.Checkpoint(tmp_path, monitor="val_accuracy")
    history = trainer.fit(x, y, validation=data(4), epochs=6, callbacks=[watch])
    trainer.load_checkpoint(tmp_path / "best")
    best = max(history["val_accuracy"])
    assert trainer.evaluate(*data(4))["accuracy"] == best


def test_budgets():
    x, y = data(4)
    assert make().fit(x, y, epochs=9, max_steps=4).stopped == "max_steps=4"
    assert make().fit(x, y, epochs=10**6, max_time=0.2).stopped == "max_time=0.2"


def test_a_callback_may_stop():
    class Stop(callbacks.Callback):
        def on_step_end(self, loop, logs):
            assert {"loss", "lr", "grad_norm"} == set(logs)
            loop.stop = "enough"

    trainer = make()
    assert trainer.fit(*data(4), callbacks=[Stop()]).stopped == "enough"
    assert trainer.steps == 1


def test_divergence_names_the_first_tensor_and_keeps_the_weights():
    trainer = make(optimizer="sgd", lr=3e38)
    x, y = data(4)
    for _ in range(5):
        before = flat(trainer)
        try:
            trainer.step(x, y)
        except DivergedError as error:
            caught = error
            break
    assert caught.tensor in ("h1", "h2", "logits", "a1", "a2")
    assert str(caught).startswith(f"step {caught.step}: loss is not finite; the first such tensor")
    assert flat(trainer) == before


def test_a_bad_gradient_behind_a_good_loss_is_caught():
    """√x at 0: the loss is 0, its gradient 0/0."""
    weights = {"w": np.zeros(3, np.float32)}
    nodes = [
        problems.node("Mul", ["x", "w"], ["p"]),
        problems.node("Mul", ["p", "p"], ["q"]),
        problems.node("ReduceSum", ["q"], ["s"], keepdims=0),
        problems.node("Sqrt", ["s"], ["loss"]),
    ]
    io = [("x", problems.FLOAT, [3])], [("loss", problems.FLOAT, [])]
    trainer = Trainer(problems.make_model(nodes, *io, weights))
    with pytest.raises(
        DivergedError, match="step 1: gradient is not finite; the first such tensor"
    ):
        trainer.step({"x": np.ones(3, np.float32)})
    assert not trainer.get_weights()["w"].any()
    assert trainer.steps == 0
