"""What goes wrong says who, what came, what was expected; in the exception types of the old package."""

from __future__ import annotations

import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
from dropin.helpers import LABELS, NAMES, X, classifier, make

from onnxgrad import artifacts, onnxblock
from onnxgrad.api import CheckpointState, LinearLRScheduler, Module, Optimizer
from onnxgrad.dropin.old import checkpoint


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return make(tmp_path_factory.mktemp("artifacts"))


def expect(kind: type[Exception], text: str, action) -> None:
    with pytest.raises(kind, match=text):
        action()


# ---- files


def test_a_checkpoint_that_is_none(tmp_path):
    load = CheckpointState.load_checkpoint
    expect(RuntimeError, "nope cannot be read: No such file", lambda: load(tmp_path / "nope"))
    expect(RuntimeError, "is a folder, expected a checkpoint file", lambda: load(tmp_path))
    (tmp_path / "text").write_bytes(b"hello world, this is no checkpoint")
    expect(
        RuntimeError,
        r"not a checkpoint .* begins with b'hello wo'",
        lambda: load(tmp_path / "text"),
    )
    (tmp_path / "empty").touch()
    expect(RuntimeError, "not a checkpoint", lambda: load(tmp_path / "empty"))
    expect(TypeError, "expected str, bytes or os.PathLike", lambda: load(None))
    expect(TypeError, "received <class 'str'>", lambda: CheckpointState("x"))


def test_a_damaged_checkpoint_never_crashes(files, tmp_path):
    whole = (files.folder / "checkpoint").read_bytes()
    random, refused = np.random.RandomState(0), 0
    for trial in range(300):
        data = bytearray(whole)
        if trial % 3 == 0:
            data = data[: random.randint(8, len(whole))]
        for _ in range(random.randint(1, 4)):
            data[random.randint(8, len(data))] = random.randint(256)
        (tmp_path / "damaged").write_bytes(data)
        try:
            checkpoint.read(tmp_path / "damaged")
        except RuntimeError:
            refused += 1
    assert refused > 100  # the others changed a weight, or nothing that is read


def test_models_that_are_none(files, tmp_path):
    state = files.state()
    (tmp_path / "text.onnx").write_bytes(b"hello world, this is not a model")
    expect(
        RuntimeError,
        "training model .*nope.onnx cannot be read",
        lambda: Module(tmp_path / "nope.onnx", state),
    )
    expect(
        RuntimeError,
        "text.onnx is not an ONNX model",
        lambda: Module(tmp_path / "text.onnx", state),
    )
    training = files.folder / "training_model.onnx"
    expect(RuntimeError, "evaluation model .*nope.onnx cannot be read",
           lambda: Module(training, state, tmp_path / "nope.onnx"))  # fmt: skip
    module = files.module(state)
    expect(
        RuntimeError,
        "optimizer model .*nope.onnx cannot be read",
        lambda: Optimizer(tmp_path / "nope.onnx", module),
    )
    expect(RuntimeError, "has 0 optimizer nodes .*expected one of AdamWOptimizer or SGDOptimizerV2",
           lambda: Optimizer(training, module))  # fmt: skip
    expect(
        RuntimeError, "is in ORT format.* give the .onnx file", lambda: Module("model.ort", state)
    )


def test_a_checkpoint_of_another_model(files, tmp_path):
    other = make(tmp_path, requires_grad=["fc1.weight"])
    training = files.folder / "training_model.onnx"
    expect(RuntimeError, "do not belong together: the checkpoint has no parameter 'fc1.bias', 'fc2.weight', "
           "'fc2.bias' that the training model trains", lambda: Module(training, other.state()))  # fmt: skip
    expect(RuntimeError, "does not train parameter 'fc1.bias'.* that the checkpoint has as trained",
           lambda: Module(other.folder / "training_model.onnx", files.state()))  # fmt: skip
    arrays = checkpoint.read(files.folder / "checkpoint")
    arrays.trainable["fc1.bias"] = np.zeros(13, np.float32)
    checkpoint.write(arrays, tmp_path / "wide")
    expect(RuntimeError, r"parameter 'fc1.bias' is float32 \[13\] in the checkpoint, expected float32 \[12\]",
           lambda: Module(training, CheckpointState.load_checkpoint(tmp_path / "wide")))  # fmt: skip


def test_a_state_of_another_optimizer(files, tmp_path):
    sgd = make(tmp_path, optimizer=artifacts.OptimType.SGD)
    module = sgd.module()
    sgd.optimizer(module).step()
    CheckpointState.save_checkpoint(module._state, tmp_path / "saved", include_optimizer_state=True)
    module = sgd.module(CheckpointState.load_checkpoint(tmp_path / "saved"))
    expect(RuntimeError, "no momentum1 of shape .* saved with another optimizer or model",
           lambda: Optimizer(files.folder / "optimizer_model.onnx", module))  # fmt: skip


def test_places_that_cannot_be_written(files, tmp_path):
    state = files.state()
    expect(
        RuntimeError,
        "cannot be written",
        lambda: CheckpointState.save_checkpoint(state, tmp_path / "no" / "c"),
    )
    module = files.module(state)
    expect(RuntimeError, "cannot be written: .*no such folder",
           lambda: module.export_model_for_inferencing(tmp_path / "no" / "m.onnx", ["output"]))  # fmt: skip
    shutil.copy(files.folder / "checkpoint", tmp_path / "kept")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept"]  # and nothing half written


# ---- calls


def test_inputs_that_do_not_fit(files):
    module = files.module()
    expect(RuntimeError, "called with 1 inputs, expected 2: input, labels", lambda: module(X))
    expect(RuntimeError, "called with 3 inputs, expected 2", lambda: module(X, LABELS, LABELS))
    expect(
        RuntimeError,
        r"input 'input' has shape \[6, 3\], expected \['any', 9\]",
        lambda: module(X[:, :3], LABELS),
    )
    expect(
        RuntimeError,
        "input 'input' is float64, expected float32",
        lambda: module(X.astype(np.float64), LABELS),
    )
    expect(AttributeError, "input 'input' is a list, expected a NumPy array or an OrtValue",
           lambda: module(X.tolist(), LABELS.tolist()))  # fmt: skip
    expect(RuntimeError, "the step failed in onnxruntime", lambda: module(X, LABELS[:2]))
    value = onnxruntime.OrtValue.ortvalue_from_numpy(X[:, :3])
    expect(RuntimeError, r"has shape \[6, 3\]", lambda: module(value, value))
    assert np.isfinite(module(X, LABELS))  # and it still works


def test_modules_without_an_eval_model(files):
    module = Module(files.folder / "training_model.onnx", files.state())
    expect(RuntimeError, "made without an eval model", lambda: module.eval()(X, LABELS))
    expect(
        RuntimeError,
        "Eval model was not provided",
        lambda: module.export_model_for_inferencing("m", ["output"]),
    )


def test_devices_and_states(files):
    expect(RuntimeError, "Unsupported device type: cuda:0; onnxgrad trains on the CPU",
           lambda: files.module(device="cuda:0"))  # fmt: skip
    expect(AttributeError, "state is a str, expected a CheckpointState",
           lambda: Module(files.folder / "training_model.onnx", "checkpoint"))  # fmt: skip


def test_exports_of_nothing(files, tmp_path):
    module = files.module()
    export = module.export_model_for_inferencing
    expect(
        RuntimeError,
        "inference graph nope could not be found",
        lambda: export(tmp_path / "m.onnx", ["nope"]),
    )
    expect(RuntimeError, "graph_output_names is empty", lambda: export(tmp_path / "m.onnx", []))


def test_parameters_and_properties(files):
    state = files.state()
    parameters, properties = state.parameters, state.properties
    expect(KeyError, "Parameter zz not found", lambda: parameters["zz"])
    expect(KeyError, "Parameter zz not found", lambda: parameters.__setitem__("zz", X))
    expect(
        RuntimeError,
        r"set to shape \[6, 9\], expected \[12\]",
        lambda: parameters.__setitem__("fc1.bias", X),
    )
    expect(
        RuntimeError,
        "set to float64, expected float32",
        lambda: parameters.__setitem__("fc1.bias", np.zeros(12)),
    )
    expect(RuntimeError, "set to a list", lambda: parameters.__setitem__("fc1.bias", [1.0] * 12))
    expect(KeyError, "Property a not found", lambda: properties["a"])
    for bad in ([1], None, 1 << 70):
        expect(
            TypeError,
            "property 'a' is .*, expected an int",
            lambda bad=bad: properties.__setitem__("a", bad),
        )


def test_buffers_of_the_wrong_size(files):
    module = files.module()
    for array in (np.zeros(3, np.float32), np.zeros(module.get_parameters_size())):
        buffer = onnxruntime.OrtValue.ortvalue_from_numpy(array)
        expect(
            RuntimeError,
            r"expected float32 of shape \[185\]",
            lambda b=buffer: module.copy_buffer_to_parameters(b),
        )


def test_learning_rates(files):
    optimizer = files.optimizer(files.module())
    expect(
        TypeError,
        "learning_rate is 'fast', expected a number",
        lambda: optimizer.set_learning_rate("fast"),
    )
    for wrong, said in (
        ((1.5, 6, 0.1), r"warmup_step_count is 1\.5, expected a whole number"),
        ((2, "6", 0.1), "total_step_count is '6', expected a whole number"),
        ((2, 6, "fast"), "initial_lr is 'fast', expected a number"),
    ):
        expect(TypeError, said, lambda w=wrong: LinearLRScheduler(optimizer, *w))
    LinearLRScheduler(optimizer, np.int64(2), np.int32(6), np.float32(0.1))


# ---- artifacts and blocks


def test_generate_artifacts(tmp_path):
    def generate(model=None, **settings):
        return lambda: make(tmp_path, model, **settings)

    expect(RuntimeError, "Unknown loss provided 'ce' .*LossType.MSELoss", generate(loss="ce"))
    expect(
        TypeError, "Unknown optimizer provided 'adam' .*OptimType.AdamW", generate(optimizer="adam")
    )
    expect(RuntimeError, "model is a int", generate(3))
    expect(FileNotFoundError, "nope", generate("nope.onnx"))
    expect(
        RuntimeError,
        "cannot be frozen and require gradient .*: fc1.bias",
        generate(frozen_params=["fc1.bias"]),
    )
    expect(
        RuntimeError,
        "requires_grad names 'zz', which is not found.*'fc1.weight'",
        generate(requires_grad=["zz"]),
    )
    expect(RuntimeError, "nothing to optimize", generate(requires_grad=[]))
    expect(
        RuntimeError,
        "Expected additional output names to be a list",
        generate(additional_output_names="output"),
    )
    expect(
        LookupError, "name zz is not a graph value info", generate(additional_output_names=["zz"])
    )
    expect(
        LookupError,
        "'zz' is not an output of the model; its outputs are 'output'",
        generate(loss_input_names=["zz"]),
    )
    expect(
        RuntimeError,
        "Custom op library path nope.so does not exist",
        generate(custom_op_library="nope.so"),
    )
    expect(FileNotFoundError, "no such folder", lambda: make(tmp_path / "none"))
    assert list(tmp_path.iterdir()) == []  # nothing half written


def test_an_unknown_frozen_parameter_is_a_warning(tmp_path, caplog):
    make(tmp_path, frozen_params=["zz"])
    assert "frozen_params names 'zz', which is not an initializer of the model" in caplog.text


def test_a_model_that_cannot_be_trained_names_the_node(tmp_path):
    model = classifier()
    model.graph.node.append(onnx.helper.make_node("Bernoulli", ["output"], ["drawn"], name="draw"))
    model.graph.output[0].name = "drawn"
    with pytest.raises(Exception, match="draw"):
        make(tmp_path, model, loss=artifacts.LossType.MSELoss)


def test_blocks(tmp_path):
    expect(AttributeError, "no model is being built", lambda: onnxblock.blocks.Add()("a", "b"))
    expect(RuntimeError, "Reduction avg not supported", lambda: onnxblock.loss.MSELoss("avg"))
    expect(
        RuntimeError,
        "relative path for the temp_file_name",
        lambda: onnxblock.blocks.PassThrough("/tmp/x"),
    )
    expect(RuntimeError, "base model is None", lambda: onnxblock.base(None).__enter__())
    expect(
        RuntimeError,
        "No checkpoint parameters provided",
        lambda: onnxblock.save_checkpoint(None, tmp_path / "c"),
    )
    with onnxblock.base(classifier()):
        expect(RuntimeError, "being built already", lambda: onnxblock.empty_base().__enter__())
        expect(
            LookupError,
            "Could not find input or output with name zz",
            lambda: onnxblock.blocks.InputLike("zz")(),
        )
        expect(onnx.checker.ValidationError, "zz", lambda: onnxblock.blocks.Neg()("zz"))

    class Nothing(onnxblock.TrainingBlock):
        def build(self, name):
            return name

    expect(RuntimeError, "build the training model first", Nothing().parameters)
    expect(RuntimeError, "build the training and eval models first", Nothing().to_model_proto)


def test_a_checkpoint_of_another_shape_does_not_go_into_a_model(files):
    model = classifier()
    model.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(np.zeros((2, 2), np.float32), NAMES[0])
    )
    expect(RuntimeError, r"'fc1.weight' has shape \[12, 9\] in the checkpoint, expected \[2, 2\]",
           lambda: onnxblock.load_checkpoint_to_model(files.folder / "checkpoint", model))  # fmt: skip


def test_gradients_of_another_shape_than_their_parameter(files, tmp_path):
    """As the old package computes them for a parameter that a Where repeats."""
    model = onnx.load(files.folder / "training_model.onnx")
    node = next(n for n in model.graph.node if n.input[0] == "fc1.bias_grad.accumulation.buffer")
    axes = onnx.helper.make_node("Constant", [], ["axes"], value_ints=[0])
    wrong = onnx.helper.make_node("Unsqueeze", [node.input[1], "axes"], ["wrong"])
    place = list(model.graph.node).index(node)
    node.input[1] = "wrong"
    model.graph.node.insert(place, axes)
    model.graph.node.insert(place + 1, wrong)
    onnx.save(model, tmp_path / "wrong.onnx")
    expect(RuntimeError, r"a gradient of rank 2 for parameter 'fc1.bias' of shape \[12\].*Make the artifacts again",
           lambda: Module(tmp_path / "wrong.onnx", files.state()))  # fmt: skip
