"""onnxgrad.api: Module, Optimizer, CheckpointState and LinearLRScheduler, as their users know them."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from dropin.helpers import (
    LABELS,
    NAMES,
    X,
    arrays_of,
    classifier,
    gradients,
    make,
    reference,
    steps,
)

import onnxgrad
from onnxgrad import artifacts, onnxblock
from onnxgrad.api import CheckpointState, Module

OrtValue = onnxruntime.OrtValue


@pytest.fixture
def files(tmp_path):
    return make(tmp_path)


def test_a_step_gives_the_loss_and_the_gradients(files):
    state = files.state()
    module = files.module(state)
    loss = module(X, LABELS)
    expected, slopes = reference(arrays_of(classifier()), X, LABELS)
    assert isinstance(loss, np.ndarray)
    assert loss.shape == ()
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    for name, slope in slopes.items():
        np.testing.assert_allclose(state.parameters[name].grad, slope, rtol=1e-4, atol=1e-7)


def test_gradients_add_up_until_they_are_reset(files):
    state = files.state()
    module = files.module(state)
    assert all(not g.any() for g in gradients(state).values())
    module(X, LABELS)
    one = gradients(state)
    for _ in range(2):
        module(X, LABELS)
    for name, g in gradients(state).items():
        np.testing.assert_allclose(g, 3 * one[name], rtol=1e-5, atol=1e-8)
    module.lazy_reset_grad()
    for name, g in gradients(state).items():  # lazily: the old sums stand until the next step
        np.testing.assert_allclose(g, 3 * one[name], rtol=1e-5, atol=1e-8)
    module(X, LABELS)
    for name, g in gradients(state).items():
        np.testing.assert_allclose(g, one[name], rtol=1e-6, atol=1e-9)


def test_accumulated_steps_are_one_step_on_their_sum(files):
    halves = files.state(), files.state()
    whole, parts = (files.module(s) for s in halves)
    whole(X, LABELS)
    parts(X[:3], LABELS[:3])
    parts(X[3:], LABELS[3:])
    for name in NAMES:
        two = halves[1].parameters[name].grad
        np.testing.assert_allclose(halves[0].parameters[name].grad, two / 2, rtol=1e-4, atol=1e-7)


def test_train_and_eval_mode(files):
    module = files.module()
    assert module.training
    before = module(X, LABELS)
    assert module.eval() is module
    assert not module.training
    state = module._state
    held = gradients(state)
    np.testing.assert_allclose(module(X, LABELS), before, rtol=1e-6)
    for name, g in gradients(state).items():
        np.testing.assert_array_equal(g, held[name])
    assert module.train().training


def test_ort_values_in_ort_values_out(files):
    module = files.module()
    values = OrtValue.ortvalue_from_numpy(X), OrtValue.ortvalue_from_numpy(LABELS)
    loss = module(*values)
    assert isinstance(loss, OrtValue)
    mixed = module(X, values[1])
    assert isinstance(mixed, np.ndarray)
    np.testing.assert_allclose(loss.numpy(), mixed)
    evaluated = module.eval()(*values)
    assert isinstance(evaluated, OrtValue)
    np.testing.assert_allclose(evaluated.numpy(), mixed, rtol=1e-6)


def test_several_outputs_come_as_a_tuple(tmp_path):
    module = make(tmp_path, additional_output_names=["output"]).module()
    loss, output = module(X, LABELS)
    assert output.shape == (6, 5)
    assert module.output_names()[1:] == ["output"]
    assert np.isfinite(loss)


def test_names_of_inputs_and_outputs(files):
    module = files.module()
    training = onnx.load(files.folder / "training_model.onnx")
    assert module.input_names() == ["input", "labels"]
    assert module.output_names() == [training.graph.output[0].name]
    assert module.eval().input_names() == ["input", "labels"]
    bare = Module(files.folder / "training_model.onnx", files.state()).eval()
    assert bare.input_names() == []
    assert bare.output_names() == []


def test_any_batch_size(files):
    module = files.module()
    for size in (1, 6, 2):
        loss, _ = reference(arrays_of(classifier()), X[:size], LABELS[:size])
        np.testing.assert_allclose(module(X[:size], LABELS[:size]), loss, rtol=1e-6)


def test_inputs_that_are_no_arrays_and_not_contiguous(files):
    module = files.module()
    expected = module(X, LABELS)
    np.testing.assert_array_equal(module(X, LABELS.tolist()), expected)
    np.testing.assert_array_equal(module(np.asfortranarray(X), LABELS), expected)
    np.testing.assert_array_equal(module(np.repeat(X, 2, 0)[::2], LABELS), expected)


# ---- parameters


def test_parameters_as_one_vector(tmp_path):
    files = make(tmp_path, requires_grad=NAMES[2:], frozen_params=NAMES[:2])
    state = files.state()
    module = files.module(state)
    assert module.get_parameters_size() == 12 * 5 + 5
    assert module.get_parameters_size(trainable_only=False) == 12 * 5 + 5 + 9 * 12 + 12
    both = module.get_contiguous_parameters().numpy()
    flat = np.concatenate([state.parameters[n].data.ravel() for n in NAMES])
    np.testing.assert_array_equal(both, flat)
    few = module.get_contiguous_parameters(trainable_only=True).numpy()
    np.testing.assert_array_equal(few, flat[-len(few) :])
    for trainable_only, vector in ((True, few), (False, both)):
        buffer = OrtValue.ortvalue_from_numpy(vector + 1)
        module.copy_buffer_to_parameters(buffer, trainable_only)
        again = module.get_contiguous_parameters(trainable_only).numpy()
        np.testing.assert_array_equal(again, vector + 1)
        module.copy_buffer_to_parameters(
            OrtValue.ortvalue_from_numpy(vector)._ortvalue, trainable_only
        )
    np.testing.assert_array_equal(module.get_contiguous_parameters().numpy(), both)


def test_parameters_can_be_read_and_set(tmp_path):
    files = make(tmp_path, requires_grad=NAMES[2:], frozen_params=NAMES[:2])
    state = files.state()
    assert state.parameters["fc2.bias"].grad is None  # no Module yet
    state.parameters["fc1.bias"] = np.full(12, 2, np.float32)  # the old package crashes here
    module = files.module(state)
    assert len(state.parameters) == 4
    assert [n for n, _ in state.parameters] == sorted(NAMES)
    assert "fc1.bias" in state.parameters
    assert "other" not in state.parameters
    frozen, trained = state.parameters["fc1.bias"], state.parameters["fc2.bias"]
    assert repr(frozen) == "Parameter(name=fc1.bias, requires_grad=False)"
    assert trained.requires_grad
    before = module(X, LABELS)
    assert frozen.grad is None
    assert trained.grad.any()
    original = frozen.data
    np.testing.assert_array_equal(original, 2)
    frozen.data = np.zeros(12, np.float32)
    assert module(X, LABELS) != before
    assert original[0] == 2  # a copy
    state.parameters["fc1.bias"] = original
    np.testing.assert_array_equal(module(X, LABELS), before)
    assert "fc1.bias" in repr(state.parameters)


def test_two_modules_of_one_state_share_its_parameters(files):
    state = files.state()
    first, second = files.module(state), files.module(state)
    optimizer = files.optimizer(first)
    before = second(X, LABELS)
    first(X, LABELS)
    once = gradients(state)
    optimizer.step()
    assert second(X, LABELS) < before
    state = files.state()
    first, second = files.module(state), files.module(state)
    for module in (first, first, second, second, first):  # the second begins anew
        module(X, LABELS)
    for name, g in gradients(state).items():
        np.testing.assert_allclose(g, 3 * once[name], rtol=1e-5, atol=1e-8)
    again = files.optimizer(first), files.optimizer(first)
    again[0].step()
    assert again[1]._optimizer.step == 1


# ---- properties and checkpoints


@pytest.mark.parametrize(
    "value",
    [
        -1,
        0,
        1 << 40,
        (1 << 63) - 1,
        -(1 << 63),
        -1.0,
        0.1,
        1234.0,
        "hello",
        "",
        True,
        np.int32(3),
        np.float64(2.5),
    ],
)
def test_properties_survive_a_checkpoint(files, tmp_path, value):
    state = files.state()
    assert len(state.properties) == 0
    state.properties["it"] = value
    stored = float(np.float32(value)) if isinstance(value, float) else value
    assert state.properties["it"] == stored
    CheckpointState.save_checkpoint(state, tmp_path / "saved")
    again = CheckpointState.load_checkpoint(tmp_path / "saved").properties
    assert list(again) == [("it", stored)]
    assert "it" in again
    assert type(again["it"]) is type(state.properties["it"])
    assert repr(again) == "Properties(it)"


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1, None, [1], 1j])
def test_properties_that_a_file_cannot_hold_are_refused(files, value):
    state = files.state()
    with pytest.raises(TypeError, match=r"property 'it' is .*, expected an int of 64 bits"):
        state.properties["it"] = value
    assert "it" not in state.properties


def test_outputs_are_those_of_the_model(files):
    module = files.module(files.state())
    names = module.output_names()
    assert names
    assert not any("accumulation" in name for name in names)


@pytest.mark.parametrize("kind", list(artifacts.OptimType))
def test_training_continues_where_a_checkpoint_was_saved(tmp_path, kind):
    files = make(tmp_path, optimizer=kind)
    state = files.state()
    module = files.module(state)
    optimizer = files.optimizer(module)
    steps(module, optimizer, 5)
    CheckpointState.save_checkpoint(state, tmp_path / "half", include_optimizer_state=True)
    expected = steps(module, optimizer, 5)
    module = files.module(CheckpointState.load_checkpoint(tmp_path / "half"))
    assert steps(module, files.optimizer(module), 5) == expected
    assert expected[-1] < expected[0]


def test_an_optimizer_state_is_kept_where_no_optimizer_was_made(files, tmp_path):
    module = files.module()
    optimizer = files.optimizer(module)
    steps(module, optimizer, 3)
    CheckpointState.save_checkpoint(module._state, tmp_path / "a", include_optimizer_state=True)
    state = CheckpointState.load_checkpoint(tmp_path / "a")
    CheckpointState.save_checkpoint(state, tmp_path / "b", include_optimizer_state=True)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# ---- what a Module is made with


def test_the_users_own_session_options_are_used(files):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    module = files.module(session_options=options)
    assert np.isfinite(module(X, LABELS))
    assert np.isfinite(module.eval()(X, LABELS))
    again = files.module(session_options=options)  # the options know our library already
    assert np.isfinite(again(X, LABELS))


def test_models_of_a_newer_file_format_than_onnxruntime_reads(tmp_path):
    model = classifier()
    model.ir_version = onnx.IR_VERSION
    assert np.isfinite(make(tmp_path, model).module()(X, LABELS))


def test_dropout_acts_in_training_only(tmp_path):
    model = classifier()
    nodes = model.graph.node
    place = next(i for i, n in enumerate(nodes) if n.op_type == "Relu")
    kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    on = onnx.helper.make_tensor("v", 9, [], [True])
    rest = kept[place + 1 :]
    rest[0].input[0] = "dropped"
    added = [
        onnx.helper.make_node("Constant", [], ["ratio"], value_float=0.5),
        onnx.helper.make_node("Constant", [], ["on"], value=on),
        onnx.helper.make_node("Dropout", [kept[place].output[0], "ratio", "on"], ["dropped"]),
    ]
    del nodes[:]
    nodes.extend([*kept[: place + 1], *added, *rest])
    files = make(tmp_path, model)
    module = files.module()
    assert len({float(module(X, LABELS)) for _ in range(5)}) > 1
    assert len({float(module.eval()(X, LABELS)) for _ in range(5)}) == 1


def test_strings_can_be_inputs(tmp_path):
    class Words(onnxblock.ForwardBlock):
        def __init__(self):
            super().__init__()
            self.cast = onnxblock.blocks.Cast(to=onnx.TensorProto.FLOAT)
            self.linear = onnxblock.blocks.Linear(4, 2)

        def build(self, words):
            return self.linear(self.cast(words))

    block = Words()
    with onnxblock.empty_base() as accessor:
        value = onnx.helper.make_tensor_value_info("input", onnx.TensorProto.STRING, [1, 4])
        accessor.model.graph.input.append(value)
        block("input")
    model = block.to_model_proto()
    names = [t.name for t in model.graph.initializer]
    files = make(tmp_path, model, requires_grad=names)
    state = files.state()
    module = files.module(state)
    words = np.array([["1.0", "2.5", "3", "-4"]], dtype=str)
    loss = module(words, np.array([1]))
    once = state.parameters[names[0]].grad
    assert once.any()
    module(words, np.array([1]))
    np.testing.assert_allclose(state.parameters[names[0]].grad, 2 * once, rtol=1e-6)
    # onnxruntime's loss is a difference of logits of up to about ten, and rounded as they are.
    np.testing.assert_allclose(module.eval()(words, np.array([1])), loss, rtol=1e-6, atol=2e-6)


def test_the_training_model_runs_in_a_session_of_its_own(files):
    session = onnxgrad.session(files.folder / "training_model.onnx")
    feeds = {
        **arrays_of(classifier()),
        "input": X,
        "labels": LABELS,
        "lazy_reset_grad": np.array([True]),
    }
    feeds.update((f"{n}_grad.accumulation.buffer", np.zeros_like(feeds[n])) for n in NAMES)
    outputs = [o.name for o in session.get_outputs()]
    assert outputs[1:] == [f"{n}_grad.accumulation.out" for n in NAMES]
    found = session.run(None, feeds)
    expected, _ = reference(arrays_of(classifier()), X, LABELS)
    np.testing.assert_allclose(found[0], expected, rtol=1e-6)
    assert all(flag.tolist() == [True] for flag in found[1:])
