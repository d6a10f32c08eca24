"""A decoder as builders for onnxruntime write it: 4-bit products, GroupQueryAttention, a cache of keys and values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgrad import Trainer
from onnxgrad.model.lora import Lora
from onnxgrad.train.losses import CrossEntropy

SIZE, HEADS, KV, VOCABULARY, LAYERS = 64, 4, 2, 23, 2
HEAD = SIZE // HEADS


class Builder:
    """Collects nodes and weights."""

    def __init__(self, seed: int = 0):
        self.rng, self.nodes, self.tensors = np.random.default_rng(seed), [], {}

    def node(self, op_type, inputs, outputs, domain="com.microsoft", **attributes):
        name = f"/{outputs[0].replace('.', '/')}/{op_type}"
        made = helper.make_node(op_type, inputs, outputs, domain=domain, name=name, **attributes)
        self.nodes.append(made)

    def product(self, module: str, x: str, y: str, fan_in: int, fan_out: int) -> None:
        """A product in 4 bits, with blocks of 32."""
        blocks = fan_in // 32
        self.tensors[f"{module}.MatMul.weight_Q4"] = self.rng.integers(
            0, 256, (fan_out, blocks, 16), dtype=np.uint8
        )
        scales = self.rng.uniform(0.5, 1.5, (fan_out, blocks)) / (5 * np.sqrt(fan_in))
        self.tensors[f"{module}.scales"] = scales.astype(np.float32)
        inputs = [x, f"{module}.MatMul.weight_Q4", f"{module}.scales"]
        settings = {"K": fan_in, "N": fan_out, "bits": 4, "block_size": 32, "accuracy_level": 4}
        self.node("MatMulNBits", inputs, [y], **settings)

    def norm(self, name: str) -> str:
        self.tensors[name] = np.ones(SIZE, np.float32)
        return name


def decoder() -> onnx.ModelProto:
    b = Builder()
    b.tensors["model.embed_tokens.weight"] = b.rng.standard_normal((VOCABULARY, SIZE)).astype("f")
    angles = np.outer(np.arange(32), 1 / 100 ** (np.arange(HEAD // 2) / (HEAD // 2)))
    b.tensors |= {"cos": np.cos(angles).astype("f"), "sin": np.sin(angles).astype("f")}
    b.tensors |= {"one": np.array([1]), "axis": np.array([1]), "at": np.array(1)}
    b.node("Gather", ["model.embed_tokens.weight", "input_ids"], ["x"], domain="")
    b.node("ReduceSum", ["attention_mask", "axis"], ["count"], domain="", keepdims=0)
    b.node("Sub", ["count", "one"], ["last"], domain="")
    b.node("Cast", ["last"], ["seqlens"], domain="", to=TensorProto.INT32)
    b.node("Shape", ["attention_mask"], ["mask_shape"], domain="")
    b.node("Gather", ["mask_shape", "at"], ["length"], domain="")
    b.node("Cast", ["length"], ["total"], domain="", to=TensorProto.INT32)
    b.node("SimplifiedLayerNormalization", ["x", b.norm("n0")], ["h0"], domain="", epsilon=1e-6)
    skip = "x"
    for i in range(LAYERS):
        skip = layer(b, i, skip)
    b.product("lm_head", f"h{LAYERS}", "logits", SIZE, VOCABULARY)
    return finished(b)


def layer(b: Builder, i: int, skip: str) -> str:
    """Read h{i} and what was skipped; write h{i+1}; return the sum to add next."""
    m, s = f"model.layers.{i}", f"l{i}."
    for part, size in (("q", SIZE), ("k", KV * HEAD), ("v", KV * HEAD)):
        b.product(f"{m}.attn.{part}_proj", f"h{i}", s + part, SIZE, size)
    past = [f"past_key_values.{i}.{n}" for n in ("key", "value")]
    present = [f"present.{i}.{n}" for n in ("key", "value")]
    inputs = [s + "q", s + "k", s + "v", *past, "seqlens", "total", "cos", "sin"]
    settings = {"num_heads": HEADS, "kv_num_heads": KV, "do_rotary": 1}
    b.node("GroupQueryAttention", inputs, [s + "a", *present], **settings)
    b.product(f"{m}.attn.o_proj", s + "a", s + "o", SIZE, SIZE)
    norms = [b.norm(s + "n1"), b.norm(s + "n2")]
    outputs = [s + "m", "", "", s + "r"]
    b.node("SkipSimplifiedLayerNormalization", [skip, s + "o", norms[0]], outputs, epsilon=1e-6)
    b.product(f"{m}.mlp.gate_proj", s + "m", s + "gate", SIZE, 2 * SIZE)
    b.product(f"{m}.mlp.up_proj", s + "m", s + "up", SIZE, 2 * SIZE)
    b.node("Sigmoid", [s + "gate"], [s + "sigmoid"], domain="")
    b.node("Mul", [s + "gate", s + "sigmoid"], [s + "silu"], domain="")
    b.node("Mul", [s + "silu", s + "up"], [s + "wide"], domain="")
    b.product(f"{m}.mlp.down_proj", s + "wide", s + "d", 2 * SIZE, SIZE)
    outputs = [f"h{i + 1}", "", "", s + "t"]
    b.node("SkipSimplifiedLayerNormalization", [s + "r", s + "d", norms[1]], outputs, epsilon=1e-6)
    return s + "t"


def finished(b: Builder) -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    caches = [f"{i}.{n}" for i in range(LAYERS) for n in ("key", "value")]
    inputs = [info(n, TensorProto.INT64, ["N", t]) for n, t in
              (("input_ids", "S"), ("attention_mask", "T"))]  # fmt: skip
    inputs += [
        info(f"past_key_values.{c}", TensorProto.FLOAT, ["N", KV, "P", HEAD]) for c in caches
    ]
    outputs = [info("logits", TensorProto.FLOAT, ["N", "S", VOCABULARY])]
    outputs += [info(f"present.{c}", TensorProto.FLOAT, ["N", KV, "T", HEAD]) for c in caches]
    tensors = [numpy_helper.from_array(a, n) for n, a in b.tensors.items()]
    graph = helper.make_graph(b.nodes, "decoder", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def batch() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    ids = rng.integers(0, VOCABULARY, (3, 8))
    mask = np.ones_like(ids)
    mask[1, 5:] = 0
    target = np.roll(ids, -1, axis=1)
    target[:, -1] = -100
    target[1, 4:] = -100
    return {"input_ids": ids, "attention_mask": mask, "target": target}


@pytest.mark.parametrize("variant", ["lora", "dora"])
def test_a_decoder_in_4_bits_learns_by_an_adapter(variant, tmp_path):
    import onnxruntime

    loss = CrossEntropy(ignore_index=-100)
    trainer = Trainer(decoder(), loss=loss, lr=2e-2, lora=Lora(r=4, variant=variant))
    texts = [str(n) for n in trainer.notes]
    assert any("on 4 layers (q_proj and v_proj of attention)" in t for t in texts)
    assert any("4 inputs of past keys and values are left empty" in t for t in texts)
    assert trainer.input_names == ("input_ids", "attention_mask")
    losses = [trainer.step(batch())["loss"] for _ in range(25)]
    assert losses[-1] < 0.6 * losses[0]
    trainer.save_adapter(tmp_path / "a")
    options, active = onnxruntime.SessionOptions(), onnxruntime.RunOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(tmp_path / "a" / "model.onnx"), options)
    loaded = onnxruntime.LoraAdapter()
    loaded.Load(str(tmp_path / "a" / "adapter.onnx_adapter"))
    active.add_active_adapter(loaded)
    feeds = {n: a for n, a in batch().items() if n != "target"}
    for value in session.get_inputs()[2:]:
        feeds[value.name] = np.zeros((3, KV, 0, HEAD), np.float32)
    got = session.run(["logits"], feeds, active)[0]
    x = {n: a for n, a in batch().items() if n != "target"}
    seen = x["attention_mask"].astype(bool)
    # accuracy_level 4 rounds what products read: a number between two steps of 8 bits may become either
    np.testing.assert_allclose(got[seen], trainer.predict(x)[seen], rtol=0, atol=0.05)
