"""`onnxgrad convert-checkpoint checkpoint -o weights.safetensors`: old checkpoints as other files, and back."""

from __future__ import annotations

import argparse

from onnxgrad.cli.exit_codes import OK
from onnxgrad.files.write import check_target


def add_parser(commands) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "convert-checkpoint",
        help="turn a checkpoint of onnxruntime-training into other files of tensors, or back",
        description="Reads a checkpoint of onnxruntime-training or of onnxgrad, .safetensors, .npz and .onnx files. "
        "The ending of the output says what is written: .safetensors, .npz, .onnx (with --model), else a checkpoint "
        "that onnxgrad.dropin.api and onnxruntime-training 1.19.2 load.",
    )
    parser.add_argument("checkpoint", help="what to read")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="what to write")
    parser.add_argument("--model", metavar="FILE.onnx", help="the model whose weights are replaced")
    parser.add_argument(
        "--like",
        metavar="CHECKPOINT",
        help="a checkpoint that says which parameters are trained and which frozen (default: all trained)",
    )
    return parser


def run(options: argparse.Namespace) -> int:
    from onnxgrad.dropin.old import checkpoint
    from onnxgrad.dropin.old.convert import like, read_tensors, write_tensors

    read = [path for path in (options.model, options.like) if path]
    check_target(options.output, options.checkpoint, *read)
    found = read_tensors(options.checkpoint)
    if options.like:
        found = like(found, checkpoint.read(options.like))
    write_tensors(found, options.output, options.model)
    steps = f", optimizer at step {found.optimizer.step}" if found.optimizer else ""
    print(
        f"{options.output}: {len(found.trainable)} trained and {len(found.frozen)} frozen "
        f"parameters{steps}"
    )
    return OK
