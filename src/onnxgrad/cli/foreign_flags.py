"""Flags that people bring from other tools, and what to do instead: an answer in place of "unrecognized"."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from onnxgrad.cli.arguments import CommandParser

# What to say, and the flags that it answers.
ANSWERS = {
    "onnxgrad computes on the CPU, so there is nothing to choose: leave it out. The tuned model runs on any device":
        "--device --devices --gpu --gpus --cuda --accelerator --provider",
    "it trains in float32, and writes a half-precision model in half precision again: leave it out":
        "--fp16 --bf16 --half --amp --precision --mixed-precision --tf32",
    "one process reads the data and computes, on all cores or on --threads of them":
        "--workers --num-workers --dataloader-num-workers -j --jobs",
    "several processes train together: mpiexec -n 4 onnxgrad train …": "--distributed --nproc-per-node --world-size",
    "the learning rate is --lr": "--learning-rate --learning_rate",
    "the number of passes over the data is --epochs": "--num-epochs --num-train-epochs --max-epochs",
    "the number of rows per step is --batch-size": "--per-device-train-batch-size --bs",
    "it is --schedule: cosine, linear, step …": "--scheduler --lr-scheduler --lr-scheduler-type",
    "it is --val: a share such as 0.2, or a file": "--validation-split --val-split --val-data --validation",
    "it is --accumulate": "--gradient-accumulation-steps --accumulate-grad-batches",
    "it is --clip": "--max-grad-norm --gradient-clip-val --clip-norm --clip-grad",
    "it is --patience: epochs without improvement": "--early-stopping --early-stop",
    "it is --classes: auto, or a number": "--num-classes --num-labels",
    "say what is trained instead: --trainable head, or patterns such as 'encoder.*'":
        "--freeze --unfreeze --freeze-layers",
    "the command has the optimizers' usual settings; Python has all: optimizer=onnxgrad.optimizers.SGD(momentum=0.9)":
        "--weight-decay --momentum --betas --nesterov",
    "trackers are named by --report-to: mlflow, wandb, trackio, tensorboard":
        "--wandb --mlflow --tensorboard --trackio",
    "there is nothing to compile: leave it out": "--compile --torch-compile --xla",
    "adapters are --lora r=8, or --lora r=8,variant=dora, also over quantised weights": "--qlora --peft --dora",
    "it is --quantize int8": "--qat --int8",
    "the run folder is --run-dir, the tuned model -o": "--save-dir --output-dir --project",
    "a run goes on with: onnxgrad train --resume RUN_FOLDER": "--checkpoint --ckpt --resume-from-checkpoint",
    "onnxgrad inspect looks without training; --max-time 5 trains for five seconds": "--dry-run --fast-dev-run",
}  # fmt: skip
FOREIGN = {flag: text for text, flags in ANSWERS.items() for flag in flags.split()}


def answer(arguments: Sequence[str], commands: Mapping[str, CommandParser]) -> str:
    """What to say to a flag that a command does not have and that means something elsewhere; "" for none."""
    if not arguments or arguments[0] not in commands:
        return ""
    own = commands[arguments[0]].flags()
    for argument in arguments[1:]:
        flag = argument.partition("=")[0]
        if argument == "--":
            break
        if not flag.startswith("-") or flag in own:
            continue
        if flag in FOREIGN:
            return f"{arguments[0]} has no {flag}: {FOREIGN[flag]}"
        if _shortened(flag, own):
            continue
        near = difflib.get_close_matches(
            flag, [o for o in own if o.startswith("--")], n=1, cutoff=0.75
        )
        if flag.startswith("--") and near:
            return f"{arguments[0]} has no {flag}, did you mean {near[0]}?"
    return ""


def _shortened(flag: str, own: set[str]) -> bool:
    """argparse takes the beginning of a flag where it fits one flag only."""
    return flag.startswith("--") and len([o for o in own if o.startswith(flag)]) == 1
