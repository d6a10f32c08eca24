"""Tensors that an exporter merged part again; those that were one parameter stay one."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from model import merged_models as models
from onnx import numpy_helper

from onnxgrad import Trainer
from onnxgrad.model.trainable import TrainableModel


def trained(model, **options) -> Trainer:
    """A trainer after three steps on random data."""
    trainer = Trainer(model, loss="mse", optimizer="sgd", lr=0.1, **options)
    rng = np.random.default_rng(1)
    for _ in range(3):
        x = rng.normal(size=(8, 4)).astype(np.float32)
        trainer.step(x, rng.normal(size=trainer.predict(x).shape).astype(np.float32))
    return trainer


def kinds(model, **options) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    subject = TrainableModel(model, **options)
    for note in subject.notes(subject.tensors()):
        if note.kind != "perhaps buffers":  # of names such as w
            found.setdefault(note.kind, []).append(note.subject)
    return found


def test_statistics_are_seen_behind_the_identities_of_the_older_exporter():
    trainer = trained(models.torchscript_norms())
    weights = trainer.get_weights()
    assert {"n1.running_mean", "n1.running_var", "n2.running_mean", "n2.running_var"} <= set(
        weights
    )
    assert not np.allclose(weights["n1.weight"], weights["n2.weight"])
    assert np.abs(weights["n1.running_mean"]).max() > 0
    assert kinds(models.torchscript_norms()) == {"untied": ["n1.weight", "n1.bias"]}


def test_the_written_file_has_the_new_tensors_and_runs_anywhere(tmp_path):
    trainer = trained(models.torchscript_norms())
    trainer.save(tmp_path / "tuned.onnx")
    written = onnx.load(tmp_path / "tuned.onnx")
    tensors = {t.name: numpy_helper.to_array(t) for t in written.graph.initializer}
    for name, array in trainer.get_weights().items():
        np.testing.assert_array_equal(tensors[name], array)
    assert not any(n.op_type == "Identity" for n in written.graph.node)
    x = np.random.default_rng(2).normal(size=(5, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(tmp_path / "tuned.onnx")
    np.testing.assert_allclose(session.run(None, {"x": x})[0], trainer.predict(x), atol=1e-5)
    again = TrainableModel(tmp_path / "tuned.onnx")  # nothing is left to part
    assert again.select("all") == [n for n in trainer.get_weights() if "running" not in n]


def test_the_newer_exporter_names_the_parameters_in_the_call():
    subject = TrainableModel(models.dynamo_norms())
    assert subject.select("all") == ["a.weight", "a.bias", "w", "b.1.weight", "b.1.bias"]


def test_one_module_that_is_called_twice_is_one_parameter():
    model = models.dynamo_norms()
    for entry in model.graph.node[2].metadata_props:
        entry.value = model.graph.node[0].metadata_props[0].value.replace("%y", "%z")
    assert TrainableModel(model).select("all") == ["a.weight", "a.bias", "w"]
    assert kinds(model) == {"tied": ["a.weight", "a.bias"]}


def test_without_any_trace_every_use_has_its_own_copy():
    """A simplifier has removed Identity nodes and notes; names say which module a node is of."""
    model = models.dynamo_norms()
    for node, name in zip(model.graph.node, ("", "", "/b/b.1/LayerNormalization"), strict=True):
        del node.metadata_props[:]
        node.name = name
    assert "b.1.weight" in TrainableModel(model).select("all")


@pytest.mark.parametrize("pattern", ["all", "n1.weight,n1.bias", "n2.*,n1.bias"])
def test_tie_keeps_a_tensor_one(pattern):
    subject = TrainableModel(models.torchscript_norms(), tie=pattern)
    assert "n2.weight" not in subject.select("all")
    trainer = Trainer(models.torchscript_norms(), loss="mse", tie="all")
    assert [n.kind for n in trainer.notes if n.kind == "untied"] == []


def test_a_tie_that_means_nothing_is_refused():
    with pytest.raises(
        ValueError, match="tie names 'w1', which is not a shared tensor of the model"
    ):
        TrainableModel(models.torchscript_norms(), tie="w1")
    with pytest.raises(ValueError, match="untie names 'nothing', which is not a shared tensor"):
        TrainableModel(models.torchscript_norms(), untie="nothing")


@pytest.mark.parametrize("transposed", [False, True], ids=["one tensor", "the transpose"])
def test_embedding_and_head_stay_one(transposed, tmp_path):
    model = models.tied_embedding(transposed)
    trainer = Trainer(model, loss="mse", optimizer="sgd", lr=0.5)
    rng = np.random.default_rng(3)
    ids = rng.integers(0, 7, (6, 5))
    trainer.step(ids, rng.normal(size=(6, 5, 7)).astype(np.float32))
    assert list(trainer.get_weights()) == ["embed.weight"]
    trainer.save(tmp_path / "tuned.onnx")
    tensors = {
        t.name: numpy_helper.to_array(t)
        for t in onnx.load(tmp_path / "tuned.onnx").graph.initializer
    }
    if transposed:
        np.testing.assert_array_equal(tensors["onnx::MatMul_9"], tensors["embed.weight"].T)


@pytest.mark.parametrize("transposed", [False, True], ids=["one tensor", "the transpose"])
def test_untie_parts_embedding_and_head(transposed):
    name = "onnx::MatMul_9" if transposed else "embed.weight"
    subject = TrainableModel(models.tied_embedding(transposed), untie=name)
    assert len(subject.select("all")) == 2


def test_copies_of_one_layer_part_though_their_elements_differ():
    """`nn.TransformerEncoder` copies its layer: equal tensors that were never one parameter."""
    nodes = [
        models.node("Identity", "layers.0.weight", "layers.1.weight", "Identity_0"),
        models.node("Gemm", "x layers.0.weight", "a", "/layers.0/Gemm"),
        models.node("Gemm", "a layers.1.weight", "y", "/layers.1/Gemm"),
    ]
    model = models.model(nodes, {"layers.0.weight": models.normal(4, 4)}, y=("N", 4))
    assert TrainableModel(model).select("all") == ["layers.0.weight", "layers.1.weight"]
    assert TrainableModel(model, tie="all").select("all") == ["layers.0.weight"]


def test_two_biases_of_one_cell_part_though_they_are_equal():
    """Both began at zero and had the same gradient ever since; the older exporter merged them."""
    nodes = [
        models.node("Identity", "c.bias_ih", "c.bias_hh"),
        models.node("Gemm", "x c.weight_ih c.bias_ih", "a", "/c/Gemm"),
        models.node("Gemm", "x c.weight_hh c.bias_hh", "b", "/c/Gemm_1"),
        models.node("Add", "a b", "y", "/c/Add"),
    ]
    tensors = {"c.weight_ih": models.normal(4, 3), "c.weight_hh": models.normal(4, 3)}
    model = models.model(nodes, {**tensors, "c.bias_ih": models.normal(3)}, y=("N", 3))
    assert set(TrainableModel(model).select("all")) == {*tensors, "c.bias_ih", "c.bias_hh"}
    assert kinds(model) == {"untied": ["c.bias_ih"]}


def two_layers(first: dict, second: str = "b") -> onnx.ModelProto:
    """Two layers by the older exporter, which merged the `first` tensors of layer `a` with those of another."""
    nodes = [
        models.node("Identity", name, name.replace("a.", f"{second}."), f"Identity_{name}")
        for name in first
    ]
    shared = [f"{second}.{p}" if f"a.{p}" in first else f"other.{p}" for p in ("weight", "bias")]
    nodes.append(models.node("Gemm", "x a.weight a.bias", "h", "/a/Gemm"))
    nodes.append(models.node("Gemm", f"x {' '.join(shared)}", "g", f"/{second}/Gemm"))
    nodes.append(models.node("Add", "h g", "y", "/Add"))
    own = {"a.weight": models.normal(4, 4), "a.bias": models.normal(4)}
    others = {n: models.normal(*(4, 4)[: 1 + n.endswith("weight")]) for n in shared if "other" in n}
    return models.model(nodes, {**own, **first, **others}, y=("N", 4))


def test_two_biases_that_are_added_part_though_they_are_equal():
    """They began at zero and have the same gradient: equal in a trained network, too."""
    model = two_layers({"a.bias": models.normal(4)})
    assert kinds(model) == {"untied": ["a.bias"]}
    assert "biases of different layers" in TrainableModel(model).changes[2].notes[0].text


def test_a_bias_stays_one_where_the_whole_layer_is_one():
    model = two_layers({"a.weight": models.normal(4, 4), "a.bias": models.normal(4)})
    assert kinds(model) == {"tied": ["a.weight", "a.bias"]}


def test_layers_of_zeros_and_ones_part():
    """Kernels that begin as Dirac's, biases of one for the forget gates."""
    half = np.repeat(np.float32([0, 1]), 2)
    model = two_layers({"a.weight": np.tile(half, (4, 1)), "a.bias": half})
    assert kinds(model) == {"untied": ["a.weight", "a.bias"]}


@pytest.mark.parametrize(("second", "kind"), [("/n_1/Mul", "tied"), ("/m/Mul", "untied")])
def test_what_two_calls_of_one_module_read_in_another_shape_is_one(second, kind):
    """GroupNorm's scale: the older exporter gives it a shape for every call, and merges the results."""
    nodes = [
        models.node("Identity", "onnx::Mul_5", "onnx::Mul_8", "Identity_0"),
        models.node("MatMul", "x w", "h", "/fc/MatMul"),
        models.node("Mul", "h onnx::Mul_5", "a", "/n/Mul"),
        models.node("Tanh", "a", "b", "/Tanh"),
        models.node("Mul", "b onnx::Mul_8", "y", second),
    ]
    model = models.model(
        nodes, {"w": models.normal(4, 4), "onnx::Mul_5": models.ones(4)}, y=("N", 4)
    )
    assert kinds(model) == {kind: ["onnx::Mul_5"]}


def test_what_was_computed_and_merged_with_a_parameter_is_said():
    """exp of zeros is ones, as a scale is: the call that reads it names the result."""
    call = "call_function[target=torch.ops.aten.mul.Tensor](args = (%{}, %{}), kwargs = {{}})"
    nodes = [models.node("Mul", "x scale", "h"), models.node("Mul", "h scale", "y")]
    for made, names in zip(nodes, (("x", "p_scale"), ("h", "exp")), strict=True):
        made.metadata_props.add(key=models.CALL, value=f"%{made.output[0]} = {call.format(*names)}")
    infos = {"scale": {models.KIND: "PARAMETER"}}
    model = models.model(nodes, {"scale": models.ones(4)}, y=("N", 4), infos=infos)
    assert sorted(TrainableModel(model).select("all")) == ["exp", "scale"]
    assert "computed weights" in kinds(model)


def test_a_single_number_that_is_used_twice_was_not_merged():
    nodes = [models.node("Mul", "x gain", "a"), models.node("Mul", "a gain", "y")]
    model = models.model(nodes, {"gain": models.ones(1)}, y=("N", 4))
    assert TrainableModel(model).select("all") == ["gain"]


def test_a_bias_that_the_exporter_dropped_is_back(tmp_path):
    nodes = [models.node("Gemm", "x fc.weight", "y", call="fc weight bias")]
    model = models.model(nodes, {"fc.weight": models.normal(4, 3)}, y=("N", 3))
    trainer = trained(model)
    assert np.abs(trainer.get_weights()["fc.bias"]).max() > 0
    trainer.save(tmp_path / "tuned.onnx")
    assert list(onnx.load(tmp_path / "tuned.onnx").graph.node[0].input) == [
        "x",
        "fc.weight",
        "fc.bias",
    ]
    assert kinds(model) == {"restored": ["fc.bias"]}


def test_a_bias_that_the_exporter_dropped_from_two_calls_of_one_layer_is_one():
    """`fc` is called twice, and again as `same`, another module with fc's parameters."""
    call = "fc weight bias"
    nodes = [models.node("Gemm", f"{x} fc.weight", y, call=call) for x, y in ("xa", "ab", "by")]
    nodes[2].metadata_props[1].value = str(["", "same", "call"])
    model = models.model(nodes, {"fc.weight": models.normal(4, 4)}, y=("N", 4))
    assert TrainableModel(model).select("all") == ["fc.weight", "fc.bias"]


@pytest.mark.parametrize("split", [False, True], ids=["Gemm", "MatMul and Add"])
def test_layers_that_share_their_matrix_share_their_bias(split):
    """Two modules with one weight and one bias, written without a trace; the third has its own."""
    nodes = []
    for x, y, w in (("x", "a", "f.weight"), ("a", "b", "f.weight"), ("b", "y", "g.weight")):
        name = f"/{'same' if y == 'b' else w[0]}/Gemm"
        if split:
            nodes.append(models.node("MatMul", f"{x} {w}", f"{y}.m", f"{name}.m"))
            nodes.append(models.node("Add", f"{y}.m f.bias", y, name))
        else:
            nodes.append(models.node("Gemm", f"{x} {w} f.bias", y, name))
    tensors = {"f.weight": models.normal(4, 4), "g.weight": models.normal(4, 4)}
    model = models.model(nodes, {**tensors, "f.bias": models.zeros(4)}, y=("N", 4))
    assert set(TrainableModel(model).select("all")) == {*tensors, "f.bias", "g.bias"}


def test_a_row_that_was_expanded_to_the_batch_trains_as_one(tmp_path):
    token = np.tile(models.normal(1, 1, 4), (6, 1, 1))
    nodes = [models.node("Concat", "expand x", "c", axis=1), models.node("MatMul", "c w", "y")]
    tensors = {"expand": token, "w": models.normal(4, 2)}
    infos = {"expand": {models.FOLDED: "['cls', 'val_3']"}}
    model = models.model(nodes, tensors, x=(6, 3, 4), y=(6, 4, 2), infos=infos)
    trainer = Trainer(model, loss="mse", optimizer="sgd", lr=0.1)
    rng = np.random.default_rng(4)
    trainer.step(*(rng.normal(size=s).astype(np.float32) for s in ((6, 3, 4), (6, 4, 2))))
    assert trainer.get_weights()["expand"].shape == (1, 1, 4)
    trainer.save(tmp_path / "tuned.onnx")
    written = {
        t.name: numpy_helper.to_array(t)
        for t in onnx.load(tmp_path / "tuned.onnx").graph.initializer
    }
    assert written["expand"].shape == (6, 1, 4)
    np.testing.assert_array_equal(written["expand"][0], written["expand"][5])
    assert not np.allclose(written["expand"], token)


def test_as_many_channels_as_rows_are_no_batch():
    """The scale of a GroupNorm, [6, 1, 1], beside a batch of six pictures."""
    nodes = [models.node("Conv", "x w", "h"), models.node("Mul", "h onnx::Mul_3", "y")]
    tensors = {"w": models.normal(6, 3, 3, 3), "onnx::Mul_3": models.ones(6, 1, 1)}
    model = models.model(nodes, tensors, x=(6, 3, 8, 8), y=(6, 6, 6, 6))
    assert kinds(model) == {}


def test_the_row_of_padding_stays_zero():
    table = models.normal(7, 4)
    table[2] = 0
    nodes = [models.node("Gather", "embed.weight x", "e"), models.node("MatMul", "e w", "y")]
    tensors = {"embed.weight": table, "w": models.normal(4, 2)}
    model = models.model(nodes, tensors, x=("N", 5), y=("N", 5, 2), kind=onnx.TensorProto.INT64)
    trainer = Trainer(model, loss="mse", optimizer="adam", lr=0.1)
    ids = np.random.default_rng(5).integers(0, 7, (6, 5))
    trainer.step(ids, np.ones((6, 5, 2), np.float32))
    assert not trainer.get_weights()["embed.weight"][2].any()
    assert np.abs(trainer.get_weights()["embed.weight"] - table).max() > 0.05


@pytest.mark.parametrize("target", ["linear", "addmm"])
def test_a_bias_is_known_by_its_place_in_the_call(target):
    """Biases of cells are `bias_ih` and `bias_hh`, those of one's own layers anything."""
    arguments = {"linear": "%x, %p_c_weight_ih, %p_c_bias_ih", "addmm": "%p_c_bias_ih, %x, %t"}
    node = models.node("Gemm", "x c.weight_ih", "y", call="c weight_ih")
    call = f"call_function[target=torch.ops.aten.{target}.default](args = ({arguments[target]}), kwargs = {{}})"
    node.metadata_props[0].value = f"%y = {call}"
    model = models.model([node], {"c.weight_ih": models.normal(4, 3)}, y=("N", 3))
    assert TrainableModel(model).select("all") == ["c.weight_ih", "c.bias_ih"]


@pytest.mark.parametrize("names", [("a.0", "a.1"), ("onnx::Mul_7", "onnx::Mul_8")], ids=str)
def test_single_factors_of_zero_that_the_older_exporter_merged_part(names):
    """Each block of a network that begins as the identity has one, be it an element of a vector."""
    first, second = names
    nodes = [
        models.node("Identity", first, second, "Identity_0"),
        models.node("Tanh", "x", "a"),
        models.node("Mul", f"{first} a", "b"),
        models.node("Add", "x b", "c"),
        models.node("Mul", f"{second} c", "y"),
    ]
    model = models.model(nodes, {first: models.zeros()}, y=("N", 4))
    assert sorted(TrainableModel(model).select("all")) == [*names]
    assert kinds(model) == {"untied": [first]}


@pytest.mark.parametrize(("number", "parts"), [(0.0, 2), (0.01, 2), (0.0123456, 1)])
def test_elements_of_a_vector_that_the_newer_exporter_merged_part(number, parts):
    """p[0] and p[1], equal since both are new; trained elements that are equal are one."""
    call = "call_function[target=torch.ops.aten.mul.Tensor](args = (%select{}, %{}), kwargs = {{}})"
    nodes = []
    for x, y, number_of in (("x", "a", ""), ("a", "y", "_1")):
        nodes.append(models.node("Mul", f"select {x}", y))
        nodes[-1].metadata_props.add(key=models.CALL, value=f"%{y} = {call.format(number_of, x)}")
    infos = {"select": {models.FOLDED: "['p', 'val_0']"}}
    tensors = {"select": np.array(number, np.float32)}
    model = models.model(nodes, tensors, y=("N", 4), infos=infos)
    assert TrainableModel(model).select("all") == ["select", "select_1"][:parts]


def test_a_parameter_that_its_own_module_uses_several_times_stays_one():
    """Zeros that a loop adds at every step, in a file of the older exporter that has merged nothing."""
    nodes = [models.node("Add", f"{x} t", y, f"/Add_{y}") for x, y in ("xa", "ab", "by")]
    model = models.model(nodes, {"t": models.zeros(4)}, y=("N", 4))
    assert TrainableModel(model).select("all") == ["t"]


def test_an_expanded_parameter_trains_as_one_whoever_reads_it():
    nodes = [
        models.node("MatMul", "transpose w", "m"),
        models.node("Add", "m x", "y"),
    ]
    token = np.tile(models.normal(5, 1, 4), (1, 6, 1))
    infos = {"transpose": {models.FOLDED: "['expand', 'memory', 'val_3']"}}
    tensors = {"transpose": token, "w": models.normal(4, 4)}
    model = models.model(nodes, tensors, x=(5, 6, 4), y=(5, 6, 4), infos=infos)
    trainer = Trainer(model, loss="mse")
    assert trainer.get_weights()["transpose"].shape == (5, 1, 4)


def two_calls(tie: bool = True) -> onnx.ModelProto:
    """One batch normalisation that is called on two inputs, as in a Siamese network; or one with two scales."""
    scales = ["n.weight", "n.weight" if tie else "other"]
    rest = "n.bias n.running_mean n.running_var"
    nodes = [
        models.node("MatMul", "x w", "a"),
        models.node("BatchNormalization", f"x {scales[0]} {rest}", "p", "/n/BatchNormalization"),
        models.node("BatchNormalization", f"a {scales[1]} {rest}", "q", "/n_1/BatchNormalization"),
        models.node("Add", "p q", "y"),
    ]
    tensors = {name: models.normal(4) for name in ("n.weight", "n.bias", "n.running_mean", "other")}
    tensors |= {"n.running_var": np.abs(models.normal(4)) + 1, "w": models.normal(4, 4)}
    tensors = {k: v for k, v in tensors.items() if k != "other" or not tie}
    return models.model(nodes, tensors, y=("N", 4))


def test_a_batch_norm_that_is_called_twice_moves_its_statistics_twice():
    model = two_calls()
    before = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    trainer = Trainer(model, loss="mse", optimizer="sgd", lr=0.0)
    assert "frozen" not in {note.kind for note in trainer.notes}
    x = np.random.default_rng(3).normal(size=(16, 4)).astype(np.float32)
    trainer.step(x, x)
    expected = before["n.running_mean"]
    for batch in (x, x @ before["w"]):
        expected = 0.9 * expected + 0.1 * batch.mean(0)
    np.testing.assert_allclose(trainer.get_weights()["n.running_mean"], expected, rtol=1e-5)


def test_statistics_of_two_layers_stay():
    (note,) = [n for n in Trainer(two_calls(tie=False), loss="mse").notes if n.kind == "frozen"][:1]
    assert "another use shares its statistics" in note.text
