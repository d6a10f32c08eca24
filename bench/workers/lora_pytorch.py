"""A LoRA step with peft in PyTorch; of a base in 4 bits with bitsandbytes. See protocol.py.

python lora_pytorch.py export encoder FOLDER    writes model.onnx and batch.npz
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from lora_networks import KEPT, PROBLEMS, SETTINGS
from networks import make
from protocol import serve, steps_of_torch
from torch import nn

warnings.simplefilter("ignore")


def export(name: str, folder: str) -> None:
    network, x, y = make(PROBLEMS[name][0])
    names = {"input_names": ["x"], "output_names": ["logits"]}
    network.eval()
    torch.onnx.export(
        network, (x,), str(Path(folder, "model.onnx")), dynamo=False, opset_version=17, **names
    )
    np.savez(Path(folder, "batch.npz"), x=x.numpy(), y=y.reshape(-1).numpy())


def packed(network: nn.Module) -> nn.Module:
    """Every linear layer but the last in NF4, in blocks of 64."""
    import bitsandbytes as bnb

    for path, module in list(network.named_modules()):
        if not isinstance(module, nn.Linear) or path.endswith(KEPT):
            continue
        new = bnb.nn.Linear4bit(
            module.in_features, module.out_features, module.bias is not None, torch.float32,
            quant_type="nf4",
        )  # fmt: skip
        new.weight = bnb.nn.Params4bit(
            module.weight.data, requires_grad=False, quant_type="nf4", blocksize=64
        )
        new.bias = module.bias
        parent = network.get_submodule(path.rpartition(".")[0])
        setattr(parent, path.rpartition(".")[2], new.to("cpu"))
    network.is_loaded_in_4bit = True
    return network


def prepare(folder, threads):
    from peft import LoraConfig, get_peft_model

    torch.set_num_threads(threads)
    line = json.loads(Path(folder, "line.json").read_text())
    name, targets, _ = PROBLEMS[line["name"]]
    network, x, y = make(name)
    network = packed(network) if line["bits"] == 4 else network
    model = get_peft_model(network, LoraConfig(target_modules=list(targets), **SETTINGS))
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=True)
    return steps_of_torch(lambda: model(x), y.reshape(-1), optimizer)


if __name__ == "__main__":
    if sys.argv[1:2] == ["export"]:
        export(*sys.argv[2:])
    else:
        serve(prepare)
