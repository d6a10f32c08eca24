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


def embed(b: Builder, packed: bool) -> None:
    """The table of tokens, in floats or in 4 bits with blocks of 32."""
    name = "model.embed_tokens.weight"
    if not packed:
        b.tensors[name] = b.rng.standard_normal((VOCABULARY, SIZE)).astype("f")
        b.node("Gather", [name, "input_ids"], ["x"], domain="")
        return
    b.tensors[name] = b.rng.integers(0, 256, (VOCABULARY, SIZE // 2), dtype=np.uint8)
    b.tensors["table.scales"] = b.rng.uniform(0.1, 0.3, (VOCABULARY, SIZE // 32)).astype("f")
    settings = {"block_size": 32, "bits": 4, "quantize_axis": 1, "gather_axis": 0}
    b.node("GatherBlockQuantized", [name, "input_ids", "table.scales"], ["x"], **settings)


def decoder(packed_table: bool = False) -> onnx.ModelProto:
    b = Builder()
    angles = np.outer(np.arange(32), 1 / 100 ** (np.arange(HEAD // 2) / (HEAD // 2)))
    b.tensors |= {"cos": np.cos(angles).astype("f"), "sin": np.sin(angles).astype("f")}
    b.tensors |= {"one": np.array([1]), "axis": np.array([1]), "at": np.array(1)}
    embed(b, packed_table)
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


# By accuracy level of MatMulNBits. 4 rounds what it reads to 8 bits: where a number lies between two steps, the
# trainer's session and the plain one, whose graphs differ, may take either. 0 computes in float32.
NEAR = {0: 1e-4, 4: 0.05}


@pytest.mark.parametrize("level", NEAR)
@pytest.mark.parametrize("variant", ["lora", "dora"])
def test_a_decoder_in_4_bits_learns_by_an_adapter(variant, level, tmp_path):
    import onnxruntime

    loss = CrossEntropy(ignore_index=-100)
    model = decoder()
    for attribute in [a for n in model.graph.node for a in n.attribute]:
        if attribute.name == "accuracy_level":
            attribute.i = level
    trainer = Trainer(model, loss=loss, lr=2e-2, lora=Lora(r=4, variant=variant))
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
    np.testing.assert_allclose(got[seen], trainer.predict(x)[seen], rtol=0, atol=NEAR[level])


# ---- gradients against the formulas in float64


class Exact:
    """The decoder in float64 (or complex: a complex step gives slopes), with the weights that the integers mean."""

    def __init__(self, model: onnx.ModelProto, scale: float):
        self.t = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.scale = scale

    def table(self) -> np.ndarray:
        codes = self.t["model.embed_tokens.weight"]
        if codes.dtype != np.uint8:
            return codes.astype(np.float64)
        return self.unpacked(codes, self.t["table.scales"])

    @staticmethod
    def unpacked(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """[rows, bytes] -> [rows, 2·bytes]: the low bits first, zero is 8."""
        two = np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1).astype(np.float64)
        return (two - 8) * np.repeat(scales.astype(np.float64), 32, axis=1)

    def product(self, module: str, x: np.ndarray, lora: dict) -> np.ndarray:
        codes = self.t[f"{module}.MatMul.weight_Q4"]
        W = self.unpacked(codes.reshape(len(codes), -1), self.t[f"{module}.scales"])
        y = x @ W.T
        name = module.replace(".attn.", ".self_attn.")  # as peft calls what a builder calls attn
        if f"{name}.lora_A.weight" in lora:
            A, B = (lora[f"{name}.lora_{n}.weight"] for n in "AB")
            y = y + self.scale * (x @ A @ B)
        return y

    @staticmethod
    def norm(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)  # the weights are 1

    def attention(self, q, k, v, mask) -> np.ndarray:
        cos, sin = (self.t[n][: q.shape[1], None].astype(np.float64) for n in ("cos", "sin"))

        def turned(x):
            a, b = np.split(x, 2, -1)
            return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

        N, S = q.shape[:2]
        q, k, v = (x.reshape(N, S, -1, HEAD) for x in (q, k, v))
        q, k = turned(q), np.repeat(turned(k), HEADS // KV, 2)
        v = np.repeat(v, HEADS // KV, 2)
        scores = np.einsum("nihd,njhd->nhij", q, k) / np.sqrt(HEAD)
        seen = np.tri(S, dtype=bool) & mask.astype(bool)[:, None, None, :]
        p = np.where(seen, np.exp(scores - scores.real.max()), 0)
        p = p / p.sum(-1, keepdims=True)
        return np.einsum("nhij,njhd->nihd", p, v).reshape(N, S, -1)

    def loss(self, lora: dict, batch: dict) -> complex:
        x = self.table()[batch["input_ids"]]
        for i in range(LAYERS):
            m, h = f"model.layers.{i}", self.norm(x)
            parts = [self.product(f"{m}.attn.{p}_proj", h, lora) for p in "qkv"]
            a = self.attention(*parts, batch["attention_mask"])
            x = x + self.product(f"{m}.attn.o_proj", a, lora)
            h = self.norm(x)
            gate, up = (self.product(f"{m}.mlp.{p}_proj", h, lora) for p in ("gate", "up"))
            x = x + self.product(f"{m}.mlp.down_proj", gate / (1 + np.exp(-gate)) * up, lora)
        z = self.product("lm_head", self.norm(x), lora)
        z = z - z.real.max(-1, keepdims=True)
        log_p = z - np.log(np.exp(z).sum(-1, keepdims=True))
        used = batch["target"] >= 0
        return -log_p[used, batch["target"][used]].mean()


@pytest.mark.parametrize("packed_table", [False, True], ids=["float table", "4-bit table"])
def test_gradients_through_the_decoder_are_those_of_float64(packed_table):
    model = decoder(packed_table)
    lora = Lora(r=4, alpha=6, targets=["*q_proj*", "*v_proj*", "*gate_proj*", "*down_proj*"])
    trainer = Trainer(
        model, loss=CrossEntropy(ignore_index=-100), optimizer="sgd", lr=0.0, lora=lora
    )
    rng = np.random.default_rng(0)
    start = {n: 0.1 * rng.standard_normal(a.shape) for n, a in trainer.get_weights().items()}
    start = {n: a.astype(np.float32).astype(np.float64) for n, a in start.items()}
    trainer.set_weights(start)
    exact = Exact(model, 6 / 4)
    assert trainer.step(batch())["loss"] == pytest.approx(exact.loss(start, batch()), rel=1e-6)
    assert len(start) == 2 * 4 * LAYERS
    for name in start:
        got = trainer.store.gradient(name).astype(np.float64)
        for _ in range(4):
            direction = rng.standard_normal(got.shape)
            moved = {**start, name: start[name] + 1e-30j * direction}
            slope = exact.loss(moved, batch()).imag / 1e-30
            allowed = 1e-5 * np.linalg.norm(got)  # what a random direction sees of an error of 1e-5
            assert abs((got * direction).sum() - slope) <= allowed, name
