"""A small language model over letters, and the tokenizer.json that goes with it: for tutorials and tests."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxgrad.files.write import save, write_bytes

LETTERS = "\n abcdefghijklmnopqrstuvwxyz0123456789.,:?!'-"
WORDS = ["<pad>", "<eos>", "<unk>", *LETTERS]


def tokenizer() -> str:
    """Return a tokenizer.json with one token per letter."""
    special = [
        {"id": i, "content": w, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for i, w in enumerate(WORDS[:3])
    ]  # fmt: skip
    letters = {"type": "Split", "pattern": {"Regex": "[\\s\\S]"}, "behavior": "Isolated"}
    model = {
        "type": "WordLevel",
        "vocab": {w: i for i, w in enumerate(WORDS)},
        "unk_token": "<unk>",
    }
    found = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {**letters, "invert": False},
        "post_processor": None, "decoder": {"type": "Fuse"}, "model": model,
    }  # fmt: skip
    return json.dumps(found)


def decoder(size: int = 48, heads: int = 4, layers: int = 2, longest: int = 128) -> onnx.ModelProto:
    """Return a decoder with random weights: input_ids [N, S] -> logits [N, S, vocabulary]."""
    rng, count = np.random.default_rng(0), len(WORDS)
    weights = {
        "embed.weight": 0.1 * rng.standard_normal((count, size)),
        "position.weight": 0.1 * rng.standard_normal((longest, size)),
        "lm_head.weight": rng.standard_normal((size, count)) / np.sqrt(size),
    }
    nodes = [
        helper.make_node("Shape", ["input_ids"], ["length"], start=1),
        helper.make_node("Squeeze", ["length", "first"], ["end"]),
        helper.make_node("Range", ["zero", "end", "one"], ["places"]),
        helper.make_node("Gather", ["embed.weight", "input_ids"], ["tokens"]),
        helper.make_node("Gather", ["position.weight", "places"], ["positions"]),
        helper.make_node("Add", ["tokens", "positions"], ["x0"]),
        helper.make_node("Unsqueeze", ["places", "last"], ["rows"]),
        helper.make_node("Greater", ["places", "rows"], ["ahead"]),
        helper.make_node("Where", ["ahead", "far", "near"], ["mask"]),
    ]
    for i in range(layers):
        nodes += _layer(f"layers.{i}", f"x{i}", f"x{i + 1}")
        weights |= _layer_weights(rng, f"layers.{i}", size)
    nodes.append(helper.make_node("MatMul", [f"x{layers}", "lm_head.weight"], ["logits"]))
    constants = {
        "zero": np.int64(0), "one": np.int64(1), "first": np.array([0]), "last": np.array([1]),
        "far": np.float32(-1e9), "near": np.float32(0), "scale": np.float32((size // heads) ** -0.5),
        "heads": np.array([0, 0, heads, size // heads]), "joined": np.array([0, 0, size]),
    }  # fmt: skip
    tensors = {**{n: a.astype(np.float32) for n, a in weights.items()}, **constants}
    graph = helper.make_graph(
        nodes, "letters",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["N", "S"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", "S", count])],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in tensors.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _layer_weights(rng: np.random.Generator, name: str, size: int) -> dict[str, np.ndarray]:
    found = {
        f"{name}.self_attn.{p}_proj.weight": rng.standard_normal((size, size)) / np.sqrt(size)
        for p in "qkvo"
    }
    for norm in ("norm1", "norm2"):
        found |= {f"{name}.{norm}.weight": np.ones(size), f"{name}.{norm}.bias": np.zeros(size)}
    wide = 2 * size
    up, down = rng.standard_normal((size, wide)), rng.standard_normal((wide, size))
    return found | {
        f"{name}.mlp.up_proj.weight": up / np.sqrt(size),
        f"{name}.mlp.down_proj.weight": down / np.sqrt(wide),
    }


def _layer(name: str, x: str, y: str) -> list[onnx.NodeProto]:
    """A layer of attention and one of products, each behind a norm and added to what came in."""
    make = helper.make_node

    def product(module: str, source: str, result: str) -> onnx.NodeProto:
        return make("MatMul", [source, f"{name}.{module}.weight"], [f"{name}/{result}"])

    def norm(which: str, source: str, result: str) -> onnx.NodeProto:
        inputs = [source, f"{name}.{which}.weight", f"{name}.{which}.bias"]
        return make("LayerNormalization", inputs, [f"{name}/{result}"])

    s = f"{name}/"
    return [
        norm("norm1", x, "n1"),
        *(product(f"self_attn.{p}_proj", f"{s}n1", p) for p in "qkv"),
        *(make("Reshape", [f"{s}{p}", "heads"], [f"{s}{p}1"]) for p in "qkv"),
        *(make("Transpose", [f"{s}{p}1"], [f"{s}{p}2"], perm=[0, 2, 1, 3]) for p in "qv"),
        make("Transpose", [f"{s}k1"], [f"{s}k2"], perm=[0, 2, 3, 1]),
        make("MatMul", [f"{s}q2", f"{s}k2"], [f"{s}scores"]),
        make("Mul", [f"{s}scores", "scale"], [f"{s}scaled"]),
        make("Add", [f"{s}scaled", "mask"], [f"{s}masked"]),
        make("Softmax", [f"{s}masked"], [f"{s}p"], axis=-1),
        make("MatMul", [f"{s}p", f"{s}v2"], [f"{s}mixed"]),
        make("Transpose", [f"{s}mixed"], [f"{s}turned"], perm=[0, 2, 1, 3]),
        make("Reshape", [f"{s}turned", "joined"], [f"{s}context"]),
        product("self_attn.o_proj", f"{s}context", "attended"),
        make("Add", [x, f"{s}attended"], [f"{s}r"]),
        norm("norm2", f"{s}r", "n2"),
        product("mlp.up_proj", f"{s}n2", "up"),
        make("Relu", [f"{s}up"], [f"{s}active"]),
        product("mlp.down_proj", f"{s}active", "down"),
        make("Add", [f"{s}r", f"{s}down"], [y]),
    ]


def write(folder: str | Path = ".") -> None:
    """Write model.onnx and tokenizer.json into a folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save(decoder(), folder / "model.onnx")
    write_bytes(folder / "tokenizer.json", tokenizer().encode())
