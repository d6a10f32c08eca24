"""Outputs: what must not be replaced, written through or waited for."""

from __future__ import annotations

import os
import stat

import numpy as np
from attack_cases import case

from build import NUMBERS, dataset, external, net, train, write


def onto(box, output: str) -> list[str]:
    return train(box, write(box, net()), output=output)


@case("is a pipe")
def onto_a_pipe(box):
    """-o is a pipe that nobody reads"""
    os.mkfifo(box / "out.onnx")
    return onto(box, "out.onnx")


@case("is a device")
def onto_a_device(box):
    """-o is a device"""
    try:
        os.mknod(box / "out.onnx", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        (box / "out.onnx").symlink_to("/dev/null")
    return onto(box, "out.onnx")


@case("is a folder")
def onto_a_folder(box):
    """-o is a folder"""
    (box / "out.onnx").mkdir()
    return onto(box, "out.onnx")


@case("is read by this run")
def onto_the_dataset(box):
    """-o is the dataset"""
    return onto(box, dataset(box))


@case("is the model itself")
def onto_the_model(box):
    """-o is the model"""
    return onto(box, "m.onnx")


@case("is read by this run")
def onto_the_weights(box):
    """-o is the file in which the model keeps its weights"""
    model = net()
    external(model.graph.initializer[0], ("location", "w.bin"))
    (box / "w.bin").write_bytes(NUMBERS.tobytes())
    return train(box, write(box, model), output="w.bin")


@case("is read by this run")
def predictions_onto_the_dataset(box):
    """predict -o is the dataset"""
    data = dataset(box)
    return ["predict", write(box, net()), "--data", data, "-o", data, "--target", "y"]


@case("is read by this run")
def gradient_onto_the_model(box):
    """grad -o is the model"""
    name = write(box, net())
    return ["grad", name, "-o", name]


@case("is read by this run")
def numbers_onto_the_model(box):
    """convert-checkpoint -o is the model whose numbers are replaced"""
    np.savez(box / "p.npz", w=NUMBERS)
    name = write(box, net())
    return ["convert-checkpoint", "p.npz", "--model", name, "-o", name]
