"""Large models with random weights, and the memory that a step on them takes.

    python bench/large_models.py decoder FOLDER    a decoder of 1.2 B parameters in int4: a LoRA step on 512 tokens
    python bench/large_models.py tower FOLDER      3 GiB of float32 layers: a step that trains the last one

Writes the model into FOLDER where it is not there yet (0.8 and 3 GiB), makes a few steps in a process of its own, and
prints the most memory that was resident, files that are mapped included, beside the limit that docs/lora.md promises.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

GIB = 1 << 30
CHUNK = 1 << 24  # bytes of random numbers that are made at once


@dataclass
class Sizes:
    """Of a decoder; the defaults are those of a model of 1.2 B parameters that many people have."""

    layers: int = 16
    width: int = 2048
    heads: int = 32
    kv_heads: int = 8
    hidden: int = 8192
    words: int = 128_256
    positions: int = 2048
    block: int = 32


@dataclass
class Writer:
    """Nodes, and tensors that go straight into the data file."""

    folder: Path
    name: str = "model"
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: list[onnx.TensorProto] = field(default_factory=list)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def __post_init__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file = open(self.folder / f"{self.name}.onnx.data", "wb")  # noqa: SIM115, closed by finish

    def node(self, op: str, inputs: list[str], outputs: list[str], **attributes) -> str:
        self.nodes.append(helper.make_node(op, inputs, outputs, outputs[0], **attributes))
        return outputs[0]

    def constant(self, name: str, array: np.ndarray) -> str:
        self.tensors.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def full(self, name: str, shape: list[int], number: float) -> str:
        """A tensor of one number, in the data file."""
        offset = self._begin()
        self.file.write(np.full(shape, number, np.float32).tobytes())
        return self._end(name, shape, np.float32, offset)

    def random(self, name: str, shape: list[int], kind: type, scale: float = 1.0) -> str:
        """A tensor of random bytes, or of normal numbers with this deviation."""
        offset = self._begin()
        left = int(np.prod(shape)) * np.dtype(kind).itemsize
        while left:
            count = min(left, CHUNK) // np.dtype(kind).itemsize
            if kind is np.uint8:
                part = self.rng.integers(0, 256, count, np.uint8)
            else:
                part = (scale * self.rng.standard_normal(count, np.float32)).astype(kind)
            self.file.write(part.tobytes())
            left -= part.nbytes
        return self._end(name, shape, kind, offset)

    def _begin(self) -> int:
        return self.file.seek(-(-self.file.tell() // 4096) * 4096)

    def _end(self, name: str, shape: list[int], kind: type, offset: int) -> str:
        tensor = TensorProto(name=name, dims=shape, data_location=TensorProto.EXTERNAL)
        tensor.data_type = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        places = {"location": Path(self.file.name).name, "offset": offset}
        places["length"] = self.file.tell() - offset
        for key, value in places.items():
            tensor.external_data.add(key=key, value=str(value))
        self.tensors.append(tensor)
        return name

    def finish(self, inputs: list, outputs: list) -> Path:
        graph = helper.make_graph(self.nodes, self.name, inputs, outputs, self.tensors)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        path = self.folder / f"{self.name}.onnx"
        self.file.close()
        path.write_bytes(
            helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
        )
        return path


class Decoder:
    """A decoder as onnxruntime-genai's builder writes it: int4 products, tied table, cache, rotary attention."""

    def __init__(self, folder: Path, sizes: Sizes):
        self.s, self.w = sizes, Writer(folder)
        self.size = sizes.width // sizes.heads
        self.inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", length])
            for name, length in (("input_ids", "sequence"), ("attention_mask", "total"))
        ]
        shape = ["batch", "sequence", sizes.words]
        self.outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)]

    def write(self) -> Path:
        s, w = self.s, self.w
        x = self.embedded()
        self.lengths()
        weight = w.full("model.layers.0.input_layernorm.weight", [s.width], 1.0)
        n = w.node(
            "SimplifiedLayerNormalization",
            [x, weight],
            ["/n0"],
            epsilon=1e-5,
            axis=-1,
            stash_type=1,
        )
        for i in range(s.layers):
            n, x = self.norm(f"model.layers.{i}.post_attention_layernorm", x, self.attention(i, n))
            last = i + 1 == s.layers
            name = "model.norm" if last else f"model.layers.{i + 1}.input_layernorm"
            n, x = self.norm(name, x, self.feed_forward(i, n))
        w.node(
            "MatMulNBits", [n, "model.embed_tokens.weight_Q4", "model.embed_tokens.weight_scales"],
            ["logits"], domain="com.microsoft", K=s.width, N=s.words, bits=4, block_size=s.block,
            accuracy_level=4,
        )  # fmt: skip
        return w.finish(self.inputs, self.outputs)

    def product(self, x: str, name: str, rows: int, columns: int) -> str:
        """x [.., rows] -> [.., columns]; codes have the deviation 4.6, sums about 1."""
        w, s, blocks = self.w, self.s, rows // self.s.block
        packed = w.random(f"{name}.weight_Q4", [columns, blocks, s.block // 2], np.uint8)
        scales = w.full(f"{name}.weight_scales", [columns * blocks], rows**-0.5 / 4.6)
        return w.node(
            "MatMulNBits", [x, packed, scales], [f"/{name}"], domain="com.microsoft",
            K=rows, N=columns, bits=4, block_size=s.block, accuracy_level=4,
        )  # fmt: skip

    def embedded(self) -> str:
        s, w = self.s, self.w
        table = w.random("model.embed_tokens.weight_Q4", [s.words, s.width // 2], np.uint8)
        shape = [s.words, s.width // s.block]
        scales = w.full("model.embed_tokens.weight_scales", shape, 0.02 / 4.6)
        return w.node(
            "GatherBlockQuantized", [table, "input_ids", scales], ["/x0"], domain="com.microsoft",
            block_size=s.block, bits=4, quantize_axis=1, gather_axis=0,
        )  # fmt: skip

    def lengths(self) -> None:
        """What attention asks of the mask, and the angles of positions."""
        w, s = self.w, self.s
        w.constant("/one", np.array([1], np.int64))
        w.constant("/one32", np.array([1], np.int32))
        w.node("Cast", ["attention_mask"], ["/mask"], to=TensorProto.INT32)
        w.node("ReduceSum", ["/mask", "/one"], ["/lengths"], keepdims=0)
        w.node("Sub", ["/lengths", "/one32"], ["/seqlens"])
        w.node("Shape", ["attention_mask"], ["/total64"], start=1)
        w.node("Squeeze", ["/total64"], ["/total0"])
        w.node("Cast", ["/total0"], ["/total"], to=TensorProto.INT32)
        angles = np.outer(np.arange(s.positions), 1e4 ** (-np.arange(0, self.size, 2) / self.size))
        w.constant("cos_cache", np.cos(angles).astype(np.float32))
        w.constant("sin_cache", np.sin(angles).astype(np.float32))

    def norm(self, name: str, a: str, b: str) -> tuple[str, str]:
        """norm(a + b), and a + b."""
        weight = self.w.full(f"{name}.weight", [self.s.width], 1.0)
        out = [f"/{name}", "", "", f"/{name}/sum"]
        self.w.node(
            "SkipSimplifiedLayerNormalization",
            [a, b, weight],
            out,
            domain="com.microsoft",
            epsilon=1e-5,
        )
        return out[0], out[3]

    def attention(self, i: int, n: str) -> str:
        s, w, m = self.s, self.w, f"model.layers.{i}"
        kv = s.kv_heads * self.size
        widths = {"q": s.width, "k": kv, "v": kv}
        parts = [
            self.product(n, f"{m}.self_attn.{p}_proj.MatMul", s.width, width)
            for p, width in widths.items()
        ]
        caches = {}
        for begin, length, infos in (
            ("past_key_values", "past", self.inputs), ("present", "total", self.outputs),
        ):  # fmt: skip
            caches[begin] = [f"{begin}.{i}.{c}" for c in ("key", "value")]
            shape = ["batch", s.kv_heads, length, self.size]
            infos += [
                helper.make_tensor_value_info(c, TensorProto.FLOAT, shape) for c in caches[begin]
            ]
        given = [*parts, *caches["past_key_values"], "/seqlens", "/total", "cos_cache", "sin_cache"]
        mixed = w.node(
            "GroupQueryAttention", given, [f"/{m}.attention", *caches["present"]],
            domain="com.microsoft", num_heads=s.heads, kv_num_heads=s.kv_heads, do_rotary=1,
        )  # fmt: skip
        return self.product(mixed, f"{m}.self_attn.o_proj.MatMul", s.width, s.width)

    def feed_forward(self, i: int, n: str) -> str:
        s, w, m = self.s, self.w, f"model.layers.{i}"
        gate = self.product(n, f"{m}.mlp.gate_proj.MatMul", s.width, s.hidden)
        up = self.product(n, f"{m}.mlp.up_proj.MatMul", s.width, s.hidden)
        w.node("Sigmoid", [gate], [f"/{m}.sigmoid"])
        w.node("Mul", [gate, f"/{m}.sigmoid"], [f"/{m}.silu"])
        w.node("Mul", [f"/{m}.silu", up], [f"/{m}.inner"])
        return self.product(f"/{m}.inner", f"{m}.mlp.down_proj.MatMul", s.hidden, s.width)


def write_decoder(folder: Path, sizes: Sizes | None = None) -> Path:
    """Write a decoder with random weights."""
    return Decoder(folder, sizes or Sizes()).write()


def write_tower(folder: Path, layers: int = 48, width: int = 4096, classes: int = 10) -> Path:
    """Layers of `width`² numbers each, and a small one at the end."""
    w, x = Writer(folder, "tower"), "x"
    for i in range(layers):
        weight = w.random(f"layers.{i}.weight", [width, width], np.float32, width**-0.5)
        w.node("MatMul", [x, weight], [f"/product{i}"])
        x = w.node("Relu", [f"/product{i}"], [f"/active{i}"])
    head = w.random("head.weight", [width, classes], np.float32, width**-0.5)
    w.node("MatMul", [x, head], ["scores"])
    info = helper.make_tensor_value_info
    return w.finish(
        [info("x", TensorProto.FLOAT, ["N", width])],
        [info("scores", TensorProto.FLOAT, ["N", classes])],
    )


# ---- a process that trains ------------------------------------------------------------------------


def resident(name: str) -> int:
    """Bytes: VmRSS now, VmHWM at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(t for t in lines if t.startswith(name)).split()[1]) << 10


def train(kind: str, path: Path, tokens: int, steps: int, evaluate: bool) -> dict:
    from onnxgrad import Trainer
    from onnxgrad.model.lora import Lora
    from onnxgrad.train.losses import CrossEntropy

    rng = np.random.default_rng(0)
    started = resident("VmHWM")
    if kind == "decoder":
        lora = Lora(r=8, targets=["*q_proj*", "*v_proj*"])
        trainer = Trainer(path, loss=CrossEntropy(ignore_index=-100), lr=1e-3, lora=lora, threads=2)
        ids = rng.integers(0, 1000, (1, tokens + 1))
        x = {"input_ids": ids[:, :-1], "attention_mask": np.ones((1, tokens), np.int64)}
        y = ids[:, 1:]
    else:
        trainer = Trainer(path, loss="cross_entropy", lr=1e-3, trainable="head", threads=2)
        x = rng.standard_normal((32, 4096), np.float32)
        y = rng.integers(0, 10, 32)
    built = resident("VmHWM")
    found, losses = [], []
    for _ in range(steps):
        begin = time.process_time()
        losses.append(trainer.step(x, y)["loss"])
        found.append(time.process_time() - begin)
    report = {"imports": started, "built": built, "trained": resident("VmHWM"), "losses": losses}
    if evaluate:
        trainer.evaluate(x, y)
        report["evaluated"] = resident("VmHWM")
    return {**report, "now": resident("VmRSS"), "processor_seconds": found}


LIMITS = {
    "decoder": ("4 GiB", lambda file: 4 * GIB),
    "tower": ("1.1 × the file", lambda file: 1.1 * file),
}
WRITE = {"decoder": write_decoder, "tower": write_tower}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("kind", choices=list(WRITE))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--evaluate", action="store_true", help="evaluate after the steps, too")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    path = options.folder / ("model.onnx" if options.kind == "decoder" else "tower.onnx")
    if options.child:
        found = train(options.kind, path, options.tokens, options.steps, options.evaluate)
        print(json.dumps(found))
        return 0
    if not path.exists():
        WRITE[options.kind](options.folder)
    again = [sys.executable, __file__, *sys.argv[1:], "--child"]
    found = json.loads(subprocess.run(again, check=True, stdout=subprocess.PIPE).stdout)
    file = sum(p.stat().st_size for p in options.folder.glob(f"{path.stem}.onnx*"))
    words, limit = LIMITS[options.kind]
    peak = found.get("evaluated", found["trained"])
    print(f"file     {file / GIB:6.2f} GiB")
    for name in ("imports", "built", "trained", "evaluated", "now"):
        if name in found:
            print(f"{name:9s}{found[name] / GIB:6.2f} GiB")
    print("losses  ", " ".join(f"{x:.6f}" for x in found["losses"]))
    print(
        "seconds ",
        " ".join(f"{x:.1f}" for x in found["processor_seconds"]),
        "of processor time a step",
    )
    print(f"peak {peak / GIB:.2f} GiB, limit {limit(file) / GIB:.2f} GiB ({words})")
    return int(peak > limit(file))


if __name__ == "__main__":
    sys.exit(main())
