"""Adapters, parameters to merge, and step files."""

from __future__ import annotations

import json
import struct

import flatbuffers
import numpy as np
import onnx
from attack_cases import case

from build import dataset, net, train, write

A, B = "base_model.model.w.lora_A.weight", "base_model.model.w.lora_B.weight"


def begun_with(box, adapter: str) -> list[str]:
    return [*train(box, write(box, net()), output="tuned"), "--lora-from", adapter]


def safetensors(tensors: dict[str, tuple[str, list[int], int]]) -> bytes:
    """A .safetensors file of zeros: of each tensor the type, the shape, the bytes."""
    header, at = {}, 0
    for name, (kind, shape, size) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(at)


def peft(box, kind: str = "F32", rank: int = 1, **config: object) -> list[str]:
    """A folder as peft writes it, with other words in its settings."""
    size = {"F32": 4, "BF16": 2, "F8_E4M3": 1}[kind]
    tensors = {A: (kind, [rank, 3], 3 * rank * size), B: (kind, [2, rank], 2 * rank * size)}
    (box / "a").mkdir()
    (box / "a" / "adapter_model.safetensors").write_bytes(safetensors(tensors))
    words = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, **config}
    (box / "a" / "adapter_config.json").write_text(json.dumps(words))
    return begun_with(box, "a")


@case("share bytes with each other")
def adapter_bomb(box):
    """an .onnx_adapter file of 16 MB whose 2,000 tensors are the same 16 MB"""
    builder, size = flatbuffers.Builder(1 << 20), 1 << 24
    builder.StartVector(1, size, 8)
    builder.head = builder.Head() - size
    data = builder.EndVector()
    dims = builder.CreateNumpyVector(np.array([size // 4], np.int64))
    tables = []
    for number in range(2000):
        name = builder.CreateString(f"w{number}.lora_A.weight")
        builder.StartObject(4)
        builder.PrependInt32Slot(2, 1, 0)
        for field, offset in ((0, name), (1, dims), (3, data)):
            builder.PrependUOffsetTRelativeSlot(field, offset, 0)
        tables.append(builder.EndObject())
    builder.StartVector(4, len(tables), 4)
    for table in tables:
        builder.PrependUOffsetTRelative(table)
    parameters = builder.EndVector()
    builder.StartObject(4)
    builder.PrependInt32Slot(0, 1, 0)
    builder.PrependUOffsetTRelativeSlot(3, parameters, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"TORT")
    (box / "a.onnx_adapter").write_bytes(bytes(builder.Output()))
    return begun_with(box, "a.onnx_adapter")


@case("damaged or cut off")
def wild_adapter(box):
    """an .onnx_adapter file with offsets into nowhere"""
    (box / "a.onnx_adapter").write_bytes(b"\xff\xff\xff\x7fTORT" + bytes(range(200)))
    return begun_with(box, "a.onnx_adapter")


@case("alpha is 'x'")
def adapter_strength_of_text(box):
    """lora_alpha is a word, where two settings multiply it"""
    return peft(box, lora_alpha="x", use_dora=True, use_rslora=True)


@case("alpha is")
def adapter_strength_beyond_floats(box):
    """lora_alpha is a whole number that no float holds"""
    return peft(box, lora_alpha=10**400, use_dora=True, use_rslora=True)


@case("r is 0")
def adapter_of_rank_zero(box):
    """lora_A has no rows"""
    return peft(box, rank=0)


@case("the adapter a")
def adapter_of_bytes(box):
    """lora_A in eight bits, a type that NumPy does not have"""
    return peft(box, kind="F8_E4M3")


@case("expected 'LORA'")
def adapter_with_escapes(box):
    """a kind of adapter that would clear the screen"""
    return peft(box, peft_type="\x1b[2J\x1b]0;evil\x07")


@case("nested deeper than 100 levels")
def adapter_settings_nested(box):
    """adapter_config.json of 100,000 brackets"""
    command = peft(box)
    (box / "a" / "adapter_config.json").write_text("[" * 100_000)
    return command


@case("is the model itself")
def adapter_onto_the_model(box):
    """-o is the folder of the model, which an adapter's model.onnx would replace"""
    write(box, net(), "model.onnx")
    return [
        "train",
        "model.onnx",
        "--data",
        dataset(box),
        "-o",
        ".",
        "--loss",
        "mse",
        "--lora",
        "r=1",
    ]


@case("expected the parameters of a step file")
def parameters_with_escapes(box):
    """a tensor to merge whose name would clear the screen"""
    (box / "p.safetensors").write_bytes(safetensors({"\x1b[2Jevil": ("F32", [3, 2], 24)}))
    return ["merge", write(box, net()), "p.safetensors", "-o", "out.onnx"]


@case("says K = 4611686018427387904")
def packed_weight_that_lies(box):
    """a weight of 4 bits whose node says 2^62 rows and columns, and an adapter for it"""
    model = net("y = com.microsoft.MatMulNBits<K = 4611686018427387904, N = 4611686018427387904, bits = 4, "
                "block_size = 16>(x, q, s)")  # fmt: skip
    model.opset_import.add(domain="com.microsoft", version=1)
    for name, array in (("q", np.zeros((2, 1, 8), np.uint8)), ("s", np.ones(2, np.float32))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return [*train(box, write(box, model), output="tuned"), "--lora", "r=1"]
