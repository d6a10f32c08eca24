"""What programs with blocks of their own import beside the public names, and the names they find."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import onnx
import onnxgrad.onnxblock._graph_utils as graph_utils
import onnxgrad.onnxblock._training_graph_utils as training_graph_utils
import onnxgrad.onnxblock.blocks as blocks
import onnxruntime
import pytest
from dropin.generated_names import names
from dropin.helpers import LABELS, NAMES, X, classifier, make, reference
from onnx import TensorProto, helper

import onnxgrad
import onnxgrad.onnxblock as onnxblock
from onnxgrad import artifacts
from onnxgrad.dropin.old import export

OLD = Path(__file__).parents[1] / "golden" / "dropin" / "generated_names.json"


def test_the_names_of_results_are_those_of_the_old_package():
    assert names("onnxgrad") == json.loads(OLD.read_text())


class SquaredShare(onnxblock.Block):
    """A loss as public programs write theirs: 1 - 2·Σ(y·t)/Σ(y + t), with names from _graph_utils."""

    def __init__(self):
        super().__init__()
        self.sum, self.add, self.mul = blocks.ReduceSum(keepdims=False), blocks.Add(), blocks.Mul()
        self.div, self.sub = blocks.Div(), blocks.Sub()

    def build(self, prediction, target="target"):
        if not graph_utils.node_arg_exists(self.base, target):
            value = copy.deepcopy(graph_utils.get_output_from_output_name(self.base, prediction))
            value.name = target
            self.base.graph.input.append(value)
        numbers = {}
        for what, number in (("one", 1.0), ("two", 2.0)):
            numbers[what] = graph_utils.generate_graph_name(f"share.{what}")
            tensor = helper.make_tensor(numbers[what], TensorProto.FLOAT, [1], [number])
            self.base.graph.initializer.append(tensor)
        both = self.sum(self.mul(prediction, target))
        share = self.div(self.mul(numbers["two"], both), self.sum(self.add(prediction, target)))
        return self.sum(self.sub(numbers["one"], share))


def test_a_loss_of_ones_own(tmp_path):
    files = make(tmp_path, loss=SquaredShare())
    module = files.module()
    target = np.random.RandomState(3).rand(6, 5).astype(np.float32)
    y = onnxgrad.session(classifier()).run(None, {"input": X})[0]
    expected = 1 - 2 * (y * target).sum() / (y + target).sum()
    np.testing.assert_allclose(module(X, target), expected, rtol=1e-5)
    with pytest.raises(LookupError, match=r"'no' is not an output of the model; its outputs are"):
        graph_utils.get_output_from_output_name(classifier(), "no")
    assert graph_utils.get_input_from_input_name(classifier(), "input").name == "input"
    with pytest.raises(LookupError):
        graph_utils.get_input_from_input_name(classifier(), "output")


class GradientBlock(blocks.Block):
    """As public programs have it: a training model whose outputs are the gradients themselves."""

    def __init__(self, loss, trained):
        super().__init__()
        self.loss, self.trained = loss, trained

    def build(self, *inputs):
        return self.loss(*inputs)

    def __call__(self, *inputs):
        self.base = onnxblock.model_accessor._GLOBAL_ACCESSOR.model
        output = self.build(*inputs)
        model = self.infer_shapes_on_base()
        graph_utils.register_graph_outputs(model, output)
        self.parameters = training_graph_utils.get_model_parameters(model, self.trained, set())
        self.models = training_graph_utils.build_gradient_graph(
            model, self.trained, set(), output, onnxblock.model_accessor._GLOBAL_CUSTOM_OP_LIBRARY
        )
        return output


def test_gradients_without_accumulators():
    base = classifier()
    block = GradientBlock(onnxblock.loss.CrossEntropyLoss(), set(NAMES))
    with onnxblock.base(base):
        loss = block("output")
    training, evaluation = block.models
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in block.parameters[0]}
    assert sorted(weights) == sorted(NAMES)
    names = [o.name for o in training.graph.output]
    assert names[0] == loss
    inputs = [i.name for i in training.graph.input]
    assert names[1:] == [f"{n}_grad" for n in inputs if n in weights]
    feeds = {"input": X, "labels": LABELS, **weights}
    found = dict(zip(names, onnxgrad.session(training).run(None, feeds), strict=True))
    value, gradients = reference(weights, X, LABELS)
    np.testing.assert_allclose(found[loss], value, rtol=1e-5)
    for name in NAMES:
        np.testing.assert_allclose(found[f"{name}_grad"], gradients[name], atol=1e-6)
    plain = onnxruntime.InferenceSession(evaluation.SerializeToString())
    np.testing.assert_allclose(plain.run([loss], feeds)[0], value, rtol=1e-5)
    training_graph_utils.build_gradient_accumulation_graph(training, set(NAMES))
    assert training.graph.input[-1].name == "lazy_reset_grad"
    assert training.graph.output[1].name.endswith("_grad.accumulation.out")


def test_a_value_with_the_name_of_a_gradient_is_refused(tmp_path):
    model = classifier()
    for node in model.graph.node:
        for names_of in (node.input, node.output):
            for i, name in enumerate(names_of):
                if name == model.graph.node[0].output[0] and node is not model.graph.node[0]:
                    names_of[i] = "fc1.weight_grad"
    model.graph.node[0].output[0] = "fc1.weight_grad"
    with pytest.raises(RuntimeError, match=r"'fc1\.weight_grad' of its own"):
        make(tmp_path, model)


def test_ort_format_comes_with_the_operators_it_needs(tmp_path):
    make(tmp_path, ort_format=True)
    for name in ("training_model", "eval_model", "optimizer_model"):
        lines = (tmp_path / f"{name}.required_operators.config").read_text().splitlines()
        assert lines[:2] == ["# Generated from model/s:", f"# - {tmp_path / name}.ort"]
    needed = (tmp_path / "eval_model.required_operators.config").read_text().splitlines()[2:]
    assert any(line.startswith("ai.onnx;13;") and ",Gemm," in line for line in needed)
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_wrong_types_are_type_errors(tmp_path):
    module = make(tmp_path).module()
    with pytest.raises(TypeError, match="the buffer is a ndarray, expected an OrtValue"):
        module.copy_buffer_to_parameters(np.zeros(185, np.float32))
    for wrong in ("output", [3]):
        with pytest.raises(TypeError, match="expected a list of names"):
            module.export_model_for_inferencing(tmp_path / "x.onnx", wrong)
    with pytest.raises(artifacts.DropInError, match="is empty"):
        module.export_model_for_inferencing(tmp_path / "x.onnx", [])


def test_our_operators_are_imported_once():
    model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], []))
    for _ in range(2):
        training_graph_utils._import_ours(model)
    assert [o.domain for o in model.opset_import] == ["", "com.microsoft"]


def test_names_that_a_body_of_a_body_reads():
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (bool c, float[2] x, float[2] u, float[2] v) => (float[2] y) {
            y = If (c) <
                then_branch = a () => (float[2] p) { p = If (c) <
                    then_branch = b () => (float[2] q) { q = Mul(x, u) }, else_branch = d () => (float[2] v) {}> },
                else_branch = e () => (float[2] x) {}> }""")
    assert export._read_by(model.graph.node[0]) == {"c", "x", "u", "v", "p", "q"}
