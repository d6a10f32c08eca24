"""`onnxgrad artifacts model.onnx --loss ce --optim adamw -o folder`: the files that onnxgrad.dropin.api trains with."""

from __future__ import annotations

import argparse
from pathlib import Path

from onnxgrad.cli.exit_codes import OK
from onnxgrad.errors import DropInError

LOSSES = {
    "ce": "CrossEntropyLoss",
    "mse": "MSELoss",
    "bce": "BCEWithLogitsLoss",
    "l1": "L1Loss",
    "none": None,
}
OPTIMIZERS = {"adamw": "AdamW", "sgd": "SGD", "none": None}


def add_parser(commands) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "artifacts",
        help="write the training artifacts that onnxgrad.dropin.api, and onnxruntime.training before it, train with",
        description="Writes training_model.onnx, eval_model.onnx, optimizer_model.onnx and checkpoint.",
    )
    parser.add_argument("model", help="an ONNX file")
    parser.add_argument(
        "--loss", choices=LOSSES, default="none",
        help="what is added to the model: cross entropy, mean squares, binary cross entropy on logits, mean of "
        "distances; none: the first output is the loss",
    )  # fmt: skip
    parser.add_argument("--optim", choices=OPTIMIZERS, default="adamw", help="the optimizer model")
    parser.add_argument(
        "--train", nargs="+", default=["all"], metavar="NAME",
        help="weights to train: names, patterns such as 'head.*', all or head (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--freeze", nargs="+", default=[], metavar="NAME",
        help="weights that stay as they are and belong to the checkpoint; running statistics always do",
    )  # fmt: skip
    parser.add_argument("--outputs", nargs="+", metavar="NAME", help="returned beside the loss")
    parser.add_argument("--prefix", default="", help="begins every file name")
    parser.add_argument(
        "--ort-format", action="store_true", help="also write the models as .ort files"
    )
    parser.add_argument(
        "--nominal", action="store_true", help="also write a checkpoint of names only"
    )
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="where to write")
    return parser


def run(options: argparse.Namespace) -> int:
    from onnxgrad.dropin.artifacts import LossType, OptimType, generate_artifacts
    from onnxgrad.files.models import ModelFile
    from onnxgrad.inspection.reading import read

    model = ModelFile.of(options.model)
    read(model)  # a file that is not a model gives its sentence here
    trained, frozen = choose(model, options.train, options.freeze)
    folder = Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    loss, optimizer = LOSSES[options.loss], OPTIMIZERS[options.optim]
    try:
        generate_artifacts(
            model,
            requires_grad=trained,
            frozen_params=frozen,
            loss=None if loss is None else LossType[loss],
            optimizer=None if optimizer is None else OptimType[optimizer],
            artifact_directory=folder,
            prefix=options.prefix,
            ort_format=options.ort_format,
            additional_output_names=options.outputs,
            nominal_checkpoint=options.nominal,
        )
    except LookupError as error:
        raise DropInError(str(error)) from error
    print(f"{len(trained)} parameters are trained, {len(frozen)} are frozen")
    for file in sorted(folder.glob(f"{options.prefix}*")):
        print(file)
    return OK


def choose(path: str, train: list[str], freeze: list[str]) -> tuple[list[str], list[str]]:
    """Return the initializers that are trained, and those that are frozen: named, or statistics."""
    from onnxgrad.files.models import read_proto
    from onnxgrad.graph import load
    from onnxgrad.model import parameters, roles

    proto = read_proto(path)
    own = [t.name for t in proto.graph.initializer]
    model = load(path)
    kept = set(own) - set(freeze)
    found = [t for t in roles.judge(model, model.graph.outputs) if t.name in kept]
    trained = parameters.select(train, model, found)
    statistics = {
        name
        for node in proto.graph.node
        if node.op_type == "BatchNormalization"
        for name in node.input[3:5]
    }
    frozen = [n for n in own if n in statistics or n in freeze]
    return trained, frozen
