"""Weights in other files, and tensors that are not what they say."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
from attack_cases import case

from build import NUMBERS, external, net, train, write


def trained(box: Path, *entries: tuple[str, object], data: bytes | None = None) -> list[str]:
    model = net()
    external(model.graph.initializer[0], *entries)
    if data is not None:
        (box / "w.bin").write_bytes(data)
    return train(box, write(box, model))


@case("leads out of its folder")
def climbing_location(box):
    """external data at ../outside/secret"""
    return trained(box, ("location", "../outside/secret"))


@case("leads out of its folder")
def climbing_from_inside(box):
    """external data at sub/../../outside/secret"""
    return trained(box, ("location", "sub/../../outside/secret"))


@case("is absolute")
def absolute_location(box):
    """external data by an absolute path"""
    return trained(box, ("location", box.parent / "outside" / "secret"))


@case("link that leads out")
def link_out(box):
    """external data is a link to a file outside"""
    (box / "w.bin").symlink_to(box.parent / "outside" / "secret")
    return trained(box, ("location", "w.bin"))


@case("link that leads out")
def folder_link_out(box):
    """external data in a folder that is a link to one outside"""
    (box / "sub").symlink_to(box.parent / "outside")
    return trained(box, ("location", "sub/secret"))


@case("'location' twice")
def two_locations(box):
    """two locations: one that is checked, one that is copied over a file outside"""
    return trained(
        box, ("location", "../outside/.bashrc"), ("location", "w.bin"), data=NUMBERS.tobytes()
    )


@case("leads out of its folder")
def location_in_a_function(box):
    """external data in a Constant of a function, where base folders are forgotten"""
    more = """<domain: "mine", opset_import: ["" : 17]> f (a, b) => (c)
        { k = Constant<value = float[3, 2] {1, 2, 3, 4, 5, 6}>() d = Add(b, k) c = MatMul(a, d) }"""
    model = net("y = mine.f(x, w)", more)
    external(model.functions[0].node[0].attribute[0].t, ("location", "../outside/secret"))
    return train(box, write(box, model))


@case("expected 1,024")
def offset_beyond_the_end(box):
    """an offset behind the end of the file"""
    return trained(box, ("location", "w.bin"), ("offset", 1000), data=NUMBERS.tobytes())


@case("expected a number of bytes")
def negative_length(box):
    """a length of -1"""
    return trained(box, ("location", "w.bin"), ("length", -1), data=NUMBERS.tobytes())


@case("expected 24")
def endless_length(box):
    """a length of 2^63 - 1"""
    return trained(box, ("location", "w.bin"), ("length", 2**63 - 1), data=NUMBERS.tobytes())


@case("expected 24")
def length_of_another_shape(box):
    """a length that is not that of the shape"""
    return trained(box, ("location", "w.bin"), ("length", 8), data=NUMBERS.tobytes())


@case("is not a file")
def weights_from_a_pipe(box):
    """external data is a pipe that nobody writes to"""
    os.mkfifo(box / "w.bin")
    return trained(box, ("location", "w.bin"))


@case("is missing")
def weights_missing(box):
    """external data that is not there"""
    return trained(box, ("location", "w.bin"))


def inspected(box: Path, change) -> list[str]:
    model = net()
    change(model.graph.initializer[0])
    return ["inspect", write(box, model)]


@case("no memory holds that")
def dims_overflow(box):
    """a shape whose product leaves 64 bits"""
    return inspected(box, lambda t: t.dims.extend([2**40, 2**40]))


@case("expected sizes of 0 or more")
def negative_dim(box):
    """a shape with a negative size"""
    return inspected(box, lambda t: t.dims.append(-3))


@case("expected 24")
def short_raw_data(box):
    """fewer bytes than the shape says"""

    def change(tensor):
        tensor.ClearField("float_data")
        tensor.raw_data = b"1234"

    return inspected(box, change)


@case("element type 99")
def unknown_type(box):
    """an element type that ONNX does not have"""
    return inspected(box, lambda t: setattr(t, "data_type", 99))


@case("element type 0")
def undefined_type(box):
    """an element type of 0"""
    return inspected(box, lambda t: setattr(t, "data_type", 0))


@case("no weights", (2, 3))
def text_as_weight(box):
    """a weight of strings"""
    model = net()
    made = onnx.helper.make_tensor("w", onnx.TensorProto.STRING, [3, 2], [b"a"] * 6)
    model.graph.initializer[0].CopyFrom(made)
    return train(box, write(box, model))


@case("is made twice")
def two_tensors_of_one_name(box):
    """two initializers of one name"""
    model = net()
    model.graph.initializer.append(model.graph.initializer[0])
    return ["inspect", write(box, model)]
