"""Export networks of networks.py by PyTorch's exporters: python export.py folder vit/torchscript vit/dynamo …

Each goes into a folder of its name, with its batch. What lies there already is left alone.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from networks import make


def export(name: str, exporter: str, folder: Path) -> None:
    network, x, y = make(name)
    folder.mkdir(parents=True, exist_ok=True)
    path, names = str(folder / "model.onnx"), {"input_names": ["x"], "output_names": ["logits"]}
    network.eval()  # there is no dropout; and so people export
    if exporter == "torchscript":
        torch.onnx.export(network, (x,), path, dynamo=False, opset_version=17, **names)
    else:
        torch.onnx.export(
            network, (x,), path, dynamo=True, external_data=False, verbose=False, **names
        )
    np.savez(folder / "batch.npz", x=x.numpy(), y=y.reshape(-1).numpy())  # the last: it is whole


def main(root: str, *wanted: str) -> None:
    warnings.simplefilter("ignore")
    for one in wanted:
        if not Path(root, one, "batch.npz").exists():
            export(*one.split("/"), Path(root, one))


if __name__ == "__main__":
    main(*sys.argv[1:])
