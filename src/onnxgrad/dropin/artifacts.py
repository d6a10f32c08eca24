"""generate_artifacts: from a model to the files that training with onnxgrad.dropin.api needs."""

from __future__ import annotations

import contextlib
import logging
import os
from enum import Enum
from pathlib import Path

import onnx

from onnxgrad.dropin import onnxblock
from onnxgrad.errors import DropInError
from onnxgrad.files.models import read_whole
from onnxgrad.files.write import replace, save, work_folder
from onnxgrad.ort import session

# Above this size a model must be given as a path: a protobuf message ends here.
USE_PATH_THRESHOLD = 2147483648


class LossType(Enum):
    """The losses that `generate_artifacts` knows by name."""

    MSELoss = 1
    CrossEntropyLoss = 2
    BCEWithLogitsLoss = 3
    L1Loss = 4


class OptimType(Enum):
    """The optimizers that `generate_artifacts` knows by name."""

    AdamW = 1
    SGD = 2


def generate_artifacts(
    model: onnx.ModelProto | str,
    requires_grad: list[str] | None = None,
    frozen_params: list[str] | None = None,
    loss: LossType | onnxblock.Block | None = None,
    optimizer: OptimType | onnxblock.Block | None = None,
    artifact_directory: str | bytes | os.PathLike | None = None,
    prefix: str = "",
    ort_format: bool = False,
    custom_op_library: str | bytes | os.PathLike | None = None,
    additional_output_names: list[str] | None = None,
    nominal_checkpoint: bool = False,
    loss_input_names: list[str] | None = None,
) -> None:
    """Write training_model.onnx, eval_model.onnx, checkpoint and optimizer_model.onnx.

    `requires_grad` names the parameters to train, `frozen_params` those that stay as they are and
    still belong to the checkpoint; others stay inside the models. Without `loss` the first output
    is what is minimised; without `optimizer` there is no optimizer model. `loss_input_names` are
    what the loss judges (default: all outputs); `additional_output_names` are returned beside it.
    `prefix` begins every file name; `nominal_checkpoint` also writes a checkpoint of names only,
    and `ort_format` each model as an .ort file too.

    Raises RuntimeError for an unknown loss and TypeError for an unknown optimizer.
    """
    model, path = _model(model)
    block = _Artifacts(_loss_block(loss), loss_input_names, additional_output_names)
    optimizer_block = None if optimizer is None else _optimizer_block(optimizer)
    _mark(block, requires_grad or [], frozen_params or [])
    _warn_of_unknown(model, frozen_params or [])
    library = custom_op_library
    context = contextlib.nullcontext() if library is None else onnxblock.custom_op_library(library)
    with onnxblock.base(model, path), context:
        block(*[output.name for output in model.graph.output])
    training, evaluation = block.to_model_proto()
    models = {"training_model": training, "eval_model": evaluation}
    if optimizer_block is not None:
        with onnxblock.empty_base(opset_version=_opset(model)):
            optimizer_block(block.parameters())
            models["optimizer_model"] = optimizer_block.to_model_proto()
    folder = Path.cwd() if artifact_directory is None else Path(os.fsdecode(artifact_directory))
    _write(models, block.parameters(), folder, prefix, nominal_checkpoint)
    if ort_format:
        _write_ort_format([folder / f"{prefix}{name}.onnx" for name in models], library)


class _Artifacts(onnxblock.TrainingBlock):
    """The model's loss, and what is returned beside it."""

    def __init__(self, loss, inputs: list[str] | None, extra: list[str] | None):
        super().__init__()
        if extra and not isinstance(extra, list):
            raise DropInError(
                f"Unknown type provided for additional output names {type(extra)}. "
                "Expected additional output names to be a list of strings."
            )
        self._loss, self._inputs, self._extra = loss, inputs, extra or []

    def build(self, *inputs_to_loss):
        output = self._loss(*(self._inputs or inputs_to_loss))
        if not self._extra:
            return output
        return (*((output,) if isinstance(output, str) else output), *self._extra)


def _model(model: onnx.ModelProto | str) -> tuple[onnx.ModelProto, str | None]:
    if isinstance(model, (str, os.PathLike)):
        return read_whole(model), os.fspath(model)
    if not isinstance(model, onnx.ModelProto):
        raise DropInError(
            f"model is a {type(model).__name__}. Please pass in either a string or an ONNX "
            "ModelProto for the model."
        )
    if model.ByteSize() > USE_PATH_THRESHOLD:
        raise DropInError("This model is > 2GB. Please pass in a path to the ONNX file instead.")
    return model, None


def _loss_block(loss) -> onnxblock.Block:
    if loss is None:
        return onnxblock.blocks.PassThrough()
    if isinstance(loss, LossType):
        return getattr(onnxblock.loss, loss.name)()
    if isinstance(loss, onnxblock.Block):
        return loss
    raise DropInError(
        f"Unknown loss provided {loss!r} of {type(loss)}. Expected one of "
        f"{', '.join(map(str, LossType))}, or an onnxgrad.dropin.onnxblock.Block"
    )


def _optimizer_block(optimizer) -> onnxblock.Block:
    if isinstance(optimizer, OptimType):
        return getattr(onnxblock.optim, optimizer.name)()
    if isinstance(optimizer, onnxblock.Block):
        return optimizer
    raise TypeError(
        f"Unknown optimizer provided {optimizer!r} of {type(optimizer)}. Expected one of "
        f"{', '.join(map(str, OptimType))}, or an onnxgrad.dropin.onnxblock.Block"
    )


def _mark(block: onnxblock.TrainingBlock, trained: list[str], frozen: list[str]) -> None:
    both = sorted(set(trained) & set(frozen))
    if both:
        raise DropInError(
            "A parameter cannot be frozen and require gradient computation at the same time: "
            f"{', '.join(both)}"
        )
    for name in trained:
        block.requires_grad(name)
    for name in frozen:
        block.requires_grad(name, False)


def _warn_of_unknown(model: onnx.ModelProto, frozen: list[str]) -> None:
    """A frozen parameter that is not there is not an error in the old package; it may be a slip."""
    known = {t.name for t in model.graph.initializer}
    for name in frozen:
        if name not in known:
            logging.warning(
                "frozen_params names %r, which is not an initializer of the model", name
            )


def _opset(model: onnx.ModelProto) -> int | None:
    return next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), None)


def _write(models: dict[str, onnx.ModelProto], parameters, folder: Path, prefix, nominal) -> None:
    for name, model in models.items():
        save(model, folder / f"{prefix}{name}.onnx")
        logging.info("wrote %s", folder / f"{prefix}{name}.onnx")
    onnxblock.save_checkpoint(parameters, folder / f"{prefix}checkpoint")
    if nominal:
        path = folder / f"{prefix}nominal_checkpoint"
        onnxblock.save_checkpoint(parameters, path, nominal_checkpoint=True)


def _write_ort_format(paths: list[Path], library: str | bytes | os.PathLike | None) -> None:
    """Write each model as an .ort file beside its .onnx file, as onnxruntime itself saves them.

    `<model>.required_operators.config` lists what a build of onnxruntime for these files must have.
    """
    import onnxruntime
    from onnxruntime.tools.ort_format_model import create_config_from_models

    for path in paths:
        options = onnxruntime.SessionOptions()
        if library is not None:
            options.register_custom_ops_library(os.fsdecode(library))
        options.log_severity_level = 3
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(path.with_suffix(".ort"))
        options.add_session_config_entry("session.save_model_format", "ORT")
        session(path, options)
        config = path.with_suffix(".required_operators.config")
        with work_folder(path.parent, config.name) as folder:
            create_config_from_models([path.with_suffix(".ort")], folder / config.name, False)
            replace(folder / config.name, config)
