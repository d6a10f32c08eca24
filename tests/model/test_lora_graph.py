"""Branches in graphs: what can be adapted, that a branch starts as nothing, and all ways to write it back agree."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from model.lora_problems import MODELS, TARGETS, VARIANTS
from onnx import numpy_helper
from train.problems import FLOAT, make_model, node

from onnxgrad.errors import AdapterError
from onnxgrad.graph import load
from onnxgrad.model.lora import Lora, adapter, layers, ort_file
from onnxgrad.model.lora.settings import resolve

SETTINGS = [(name, v) for name in TARGETS for v in VARIANTS]


def run(model: ir.Model | onnx.ModelProto, feeds: dict, active: str | None = None) -> np.ndarray:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    proto = ir.to_proto(model) if isinstance(model, ir.Model) else model
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=providers)
    run_options = onnxruntime.RunOptions()
    if active is not None:
        loaded = onnxruntime.LoraAdapter()
        loaded.Load(active)
        run_options.add_active_adapter(loaded)
    return session.run(None, feeds, run_options)[0]


def moved(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tensors as a training would leave them: nothing is zero."""
    rng = np.random.default_rng(0)
    return {n: (a + 0.1 * rng.standard_normal(a.shape)).astype(a.dtype) for n, a in tensors.items()}


def with_tensors(model: ir.Model, tensors: dict[str, np.ndarray]) -> ir.Model:
    for name, array in tensors.items():
        model.graph.initializers[name].const_value = ir.tensor(array, name=name)
    return model


def adapted(proto: onnx.ModelProto, lora: Lora) -> tuple[ir.Model, adapter.Adapter]:
    model = load(proto)
    planned = adapter.plan(model, lora)
    adapter.apply(model, planned)
    return model, planned


@pytest.mark.parametrize(("name", "variant"), SETTINGS)
def test_every_way_back_gives_the_same_outputs(name, variant, tmp_path):
    problem = MODELS[name.split()[0]]()
    feeds = {"x": problem.batches[0][0]}
    lora = Lora(**problem.lora, variant=variant, targets=TARGETS[name][0])
    model, planned = adapted(problem.model(), lora)
    before = run(problem.model(), feeds)
    np.testing.assert_allclose(run(model, feeds), before, rtol=0, atol=1e-5)
    tensors = moved(planned.tensors)
    expected = run(with_tensors(model, tensors), feeds)
    assert np.abs(expected - before).max() > 0.05
    merged = with_tensors(load(problem.model()), planned.merged(tensors))
    np.testing.assert_allclose(run(merged, feeds), expected, rtol=0, atol=1e-5)
    taking = load(problem.model())
    adapter.serving(taking, planned, tensors)
    np.testing.assert_allclose(run(taking, feeds), before, rtol=0, atol=1e-5)
    file = tmp_path / "a.onnx_adapter"
    ort_file.write(file, planned.parameters(tensors))
    np.testing.assert_allclose(run(taking, feeds, str(file)), expected, rtol=0, atol=1e-5)


def test_layers_are_called_as_their_modules():
    names = [x.name for x in layers.find(load(MODELS["decoder"]().model()))]
    assert names[:2] == ["embeddings.word", "h.0.attn.c_attn"]
    assert names[-1] == "lm_head", "the head reads the table of tokens, and is a layer of its own"


ANONYMOUS = [
    ("onnx::MatMul_7", "/bert/layer.0/query/MatMul", "bert.layer.0.query"),
    ("model.layers.3.attn.q_proj.MatMul.weight", "n", "model.layers.3.self_attn.q_proj"),
    ("bert.layer.0.query.weight_quantized", "n", "bert.layer.0.query"),
    ("val_3", "", "val_3"),
]


@pytest.mark.parametrize(("weight", "title", "expected"), ANONYMOUS)
def test_names_are_found_where_exporters_leave_them(weight, title, expected):
    nodes = [node("MatMul", ["x", weight], ["y"], name=title)]
    model = make_model(
        nodes, [("x", FLOAT, [2, 3])], [("y", FLOAT, [2, 4])], {weight: np.ones((3, 4), np.float32)}
    )
    assert [x.name for x in layers.find(load(model))] == [expected]


def gemm_model(**attributes) -> onnx.ModelProto:
    rng = np.random.default_rng(3)
    weights = {
        "w": rng.standard_normal((4, 3) if attributes.get("transB") else (3, 4)).astype(np.float32),
        "b": rng.standard_normal(4).astype(np.float32),
    }
    nodes = [node("Gemm", ["x", "w", "b"], ["y"], **attributes)]
    return make_model(nodes, [("x", FLOAT, ["N", 3])], [("y", FLOAT, ["N", 4])], weights)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("attributes", [{}, {"transB": 1}, {"alpha": 0.5, "beta": 2.0}], ids=str)
def test_a_gemm_keeps_its_factors_and_its_bias(variant, attributes):
    """Against the formula in float64: Y = g·(X·αW + s·X·A·B) + βC, g = m/‖αW + s·A·B‖."""
    proto = gemm_model(**attributes)
    model, planned = adapted(proto, Lora(r=2, alpha=3, variant=variant))
    tensors = moved(planned.tensors)
    x = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    w, c = (numpy_helper.to_array(t).astype(np.float64) for t in proto.graph.initializer)
    w = attributes.get("alpha", 1.0) * (w.T if attributes.get("transB") else w)
    a, b, *m = (t.astype(np.float64) for t in tensors.values())
    new = w + 3 / (2**0.5 if variant == "rslora" else 2) * a @ b
    if variant == "dora":
        new = new * m[0] / np.linalg.norm(new, axis=0)
    expected = x @ new + attributes.get("beta", 1.0) * c
    np.testing.assert_allclose(run(with_tensors(model, tensors), {"x": x}), expected, atol=1e-5)


def attention_model(mask: bool, qkv: tuple[int, int, int] | None = None) -> onnx.ModelProto:
    rng = np.random.default_rng(2)
    total = sum(qkv) if qkv else 24
    weights = {
        "w": (0.3 * rng.standard_normal((6, total))).astype(np.float32),
        "b": rng.standard_normal(total).astype(np.float32),
    }
    more = {"qkv_hidden_sizes": list(qkv)} if qkv else {}
    inputs = ["x", "w", "b", "mask"] if mask else ["x", "w", "b"]
    nodes = [
        node(
            "Attention",
            inputs,
            ["y"],
            domain="com.microsoft",
            num_heads=2,
            unidirectional=1,
            **more,
        )
    ]
    given = [("x", FLOAT, ["N", 5, 6])]
    if mask:
        given.append(("mask", onnx.TensorProto.INT32, ["N", 5]))
    size = qkv[2] if qkv else 8
    graph = onnx.helper.make_graph(
        nodes, "attention",
        [onnx.helper.make_tensor_value_info(*v) for v in given],
        [onnx.helper.make_tensor_value_info("y", FLOAT, ["N", 5, size])],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )  # fmt: skip
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("mask", [False, True], ids=["no mask", "mask"])
@pytest.mark.parametrize("qkv", [None, (8, 8, 4)], ids=["one size", "small values"])
def test_the_packed_product_of_attention_is_adapted(variant, mask, qkv):
    proto = attention_model(mask, qkv)
    feeds = {"x": np.random.default_rng(1).standard_normal((2, 5, 6)).astype(np.float32)}
    if mask:
        feeds["mask"] = np.array([[1] * 5, [1, 1, 1, 0, 0]], np.int32)
    model, planned = adapted(proto, Lora(r=2, variant=variant))
    np.testing.assert_allclose(run(model, feeds), run(proto, feeds), atol=1e-5)
    tensors = moved(planned.tensors)
    merged = with_tensors(load(proto), planned.merged(tensors))
    got = run(with_tensors(model, tensors), feeds)
    np.testing.assert_allclose(got, run(merged, feeds), atol=1e-5)


# ---- what cannot be

REFUSED = [
    (lambda: Lora(r=0), "lora: r is 0, expected a rank of at least 1"),
    (lambda: Lora(alpha=-1), "lora: alpha is -1, expected a number above 0"),
    (lambda: Lora(dropout=1.0), "lora: dropout is 1.0, expected 0 <= rate < 1"),
    (lambda: Lora(variant="lo"), "lora: variant is 'lo', expected one of lora, rslora, dora"),
    (lambda: Lora.parse("r=eight"), "lora: r is 'eight', expected a whole number"),
    (
        lambda: Lora.parse("rank=8"),
        "lora: 'rank=8' is not a setting, expected r=8 or another of r, alpha, dropout, targets, "
        "variant, modules_to_save, start, seed",
    ),
    (
        lambda: resolve(1.5),
        'lora is a float, expected Lora(r=8, ...), a rank or "r=8,alpha=16"',
    ),
    (
        lambda: adapted(MODELS["encoder"]().model(), Lora(targets="q_proj")),
        "lora: the target 'q_proj' matches none of the model's 14 layers; the nearest are "
        "'word', 'query', 'key'",
    ),
    (
        lambda: adapted(MODELS["encoder"]().model(), Lora(modules_to_save="pooler")),
        "lora: modules_to_save names 'pooler', which matches none of the model's 36 float tensors",
    ),
    (
        lambda: adapted(
            MODELS["cnn"]().model(), Lora(targets="classifier", modules_to_save="classifier")
        ),
        "lora: 'classifier.weight' would be trained both in full and by an adapter",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[m[:40] for _, m in REFUSED])
def test_what_cannot_be_is_said_in_one_sentence(make, message):
    with pytest.raises(AdapterError) as caught:
        make()
    assert str(caught.value) == message


def test_a_shared_weight_is_not_merged():
    model = MODELS["decoder"]().model()
    _, planned = adapted(model, Lora(targets="lm_head"))
    with pytest.raises(AdapterError, match="'lm_head' shares the weight"):
        planned.merged(planned.tensors)


def test_settings_read_from_text_are_written_as_the_same_text():
    text = "r=4,alpha=6,dropout=0.05,targets=q_proj|v_proj,variant=dora,modules_to_save=head"
    assert Lora.parse(text).text() == text
    assert Lora.parse("").text() == "r=8,alpha=16,dropout=0,variant=lora"
