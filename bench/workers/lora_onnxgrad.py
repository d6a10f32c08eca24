"""A LoRA step of onnxgrad, of a base in floats or in 4 bits; see protocol.py."""

import json
from pathlib import Path

import numpy as np
import onnx
from lora_networks import KEPT, PROBLEMS, SETTINGS
from protocol import serve, steps_of_trainer


def packed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Every linear layer but the last in NF4, in blocks of 64, as onnxruntime's own tool writes it."""
    from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer

    kept = [n.name for n in model.graph.node if KEPT in n.name]
    made = MatMulBnb4Quantizer(model, MatMulBnb4Quantizer.NF4, 64, nodes_to_exclude=kept)
    made.process()
    return made.model.model


def prepare(folder, threads):
    import onnxgrad
    from onnxgrad.model.lora import Lora
    from onnxgrad.train.optimizers import AdamW

    line = json.loads(Path(folder, "line.json").read_text())
    data = np.load(f"{folder}/batch.npz")
    model = onnx.load(f"{folder}/model.onnx")
    lora = Lora(
        r=SETTINGS["r"], alpha=SETTINGS["lora_alpha"], targets=list(PROBLEMS[line["name"]][1])
    )
    trainer = onnxgrad.Trainer(
        packed(model) if line["bits"] == 4 else model, loss="cross_entropy",
        optimizer=AdamW(lr=1e-4, weight_decay=0.01), threads=threads, lora=lora,
    )  # fmt: skip
    return steps_of_trainer(trainer, data["x"], data["y"])


if __name__ == "__main__":
    serve(prepare)
