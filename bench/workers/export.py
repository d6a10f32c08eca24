"""Export a network of networks.py by one of PyTorch's exporters: python export.py vit torchscript folder."""

import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from networks import make


def main(name: str, exporter: str, folder: str) -> None:
    warnings.simplefilter("ignore")
    network, x, y = make(name)
    path = str(Path(folder, "model.onnx"))
    names = {"input_names": ["x"], "output_names": ["logits"]}
    network.eval()  # there is no dropout; and so people export
    if exporter == "torchscript":
        torch.onnx.export(network, (x,), path, dynamo=False, opset_version=17, **names)
    else:
        torch.onnx.export(
            network, (x,), path, dynamo=True, external_data=False, verbose=False, **names
        )
    np.savez(Path(folder, "batch.npz"), x=x.numpy(), y=y.reshape(-1).numpy())


if __name__ == "__main__":
    main(*sys.argv[1:])
