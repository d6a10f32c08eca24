"""Data that cost more than they are worth, and files that say how inputs are made."""

from __future__ import annotations

import json
import struct

import numpy as np
import onnx
from attack_cases import case

from build import dataset, net, train, write

LABELS = ["--loss", "cross_entropy", "--epochs", "1", "-o", "out.onnx"]


def remembered(model: onnx.ModelProto, forms: object) -> onnx.ModelProto:
    """Put into the model what onnxgrad writes there after a training: how inputs are made."""
    text = forms if isinstance(forms, str) else json.dumps(forms)
    model.metadata_props.add(key="onnxgrad.inputs", value=text)
    return model


def looker(kind: str = "float[N, 3, H, W]") -> onnx.ModelProto:
    """A model of pictures of any size."""
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net ({kind} x) => (float[N, 2] y) <float[3, 2] w = {{1, 2, 3, 4, 5, 6}}>
        {{ g = GlobalAveragePool(x)  f = Flatten(g)  y = MatMul(f, w) }}""")


def listener() -> onnx.ModelProto:
    """A model of sounds of any length."""
    return onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, S] x) => (float[N, 2] y) <float[1, 2] w = {1, 2}>
        { m = ReduceMean<axes = [1]>(x)  y = MatMul(m, w) }""")


def by_class(box, ending: str, content: bytes) -> str:
    """A folder of two classes with the same file in each."""
    for name in "ab":
        (box / "d" / name).mkdir(parents=True)
        for number in range(4):
            (box / "d" / name / f"{number}.{ending}").write_bytes(content)
    return "d"


def picture() -> bytes:
    """Eight by eight pixels, as a bitmap."""
    head = struct.pack("<IiiHHIIiiII", 40, 8, 8, 1, 24, 0, 192, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + 192, 0, 0, 54) + head + bytes(192)


def seen_by(box, model: onnx.ModelProto, content: bytes = b"") -> list[str]:
    data = by_class(box, "bmp", content or picture())
    return ["train", write(box, model), "--data", data, *LABELS]


@case("× 1,000,000 pixels, and the limit is")
def forged_size(box):
    """a model that remembers having been trained on pictures of 10^12 pixels"""
    return seen_by(box, remembered(looker(), {"pictures": {"resize": [10**6, 10**6]}}))


@case("× 1,000,000 pixels, and the limit is")
def inputs_of_a_million(box):
    """a model whose input is 10^12 pixels"""
    return seen_by(box, looker("float[N, 3, 1000000, 1000000]"))


@case("'onnxgrad.inputs' are damaged")
def forged_deviation(box):
    """a model that remembers a mean that no float holds"""
    return seen_by(box, remembered(looker(), {"pictures": {"mean": [10**400]}}))


@case("'onnxgrad.inputs' are damaged")
def forged_constant(box):
    """a model that remembers an input that no float holds"""
    return train(box, write(box, remembered(net(), {"constants": {"x": 10**400}})))


@case("leads out of its folder")
def forged_tokenizer(box):
    """a model that remembers a tokenizer outside its folder"""
    forms = {"texts": {"tokenizer": "../outside/secret"}}
    return train(box, write(box, remembered(net(), forms)))


@case("preprocessor_config.json is not understood")
def recipe_without_end(box):
    """a preprocessor_config.json whose size is infinite"""
    (box / "preprocessor_config.json").write_text('{"size": 1e999}')
    return seen_by(box, looker())


@case("pixels, and the limit is")
def recipe_of_a_million(box):
    """a preprocessor_config.json whose pictures have a shorter side of 10^7"""
    (box / "preprocessor_config.json").write_text('{"size": 10000000}')
    return seen_by(box, looker())


@case("cannot be read as an image")
def script_as_picture(box):
    """a picture that is a program: PostScript, which Pillow hands to Ghostscript"""
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"
    return seen_by(box, looker(), script)


def wav(rate: int, width: int = 2) -> bytes:
    """A thousand samples of silence, in a header that says what one likes."""
    form = struct.pack("<IHHIIHH", 16, 1, 1, rate, rate * width, width, 8 * width)
    data = bytes(1000 * width)
    head = b"WAVEfmt " + form + b"data" + struct.pack("<I", len(data))
    return b"RIFF" + struct.pack("<I", len(head) + len(data)) + head + data


def heard_by(box, model: onnx.ModelProto, content: bytes) -> list[str]:
    return ["train", write(box, model), "--data", by_class(box, "wav", content), *LABELS]


@case("has 0 samples a second")
def sound_without_rate(box):
    """a sound of 0 samples a second"""
    return heard_by(box, listener(), wav(0))


@case("0.wav")
def sound_of_strange_width(box):
    """a sound whose samples have five bytes"""
    return heard_by(box, listener(), wav(8000, width=5))


@case("too far apart to resample")
def sound_of_hours(box):
    """a sound of one sample a second for a model that remembers a million"""
    return heard_by(box, remembered(listener(), {"sounds": {"rate": 1_000_000}}), wav(1))


@case("samples of each sound, and the limit is")
def forged_length(box):
    """a model that remembers sounds of 10^11 samples"""
    forms = {"sounds": {"rate": 8000, "length": 10**11}}
    return heard_by(box, remembered(listener(), forms), wav(8000))


@case("would unpack to")
def one_long_cell(box):
    """a CSV file of 600 KB with one long cell, where every cell takes as much as the longest"""
    lines = ["a,b,c,label", "1,2,3," + "x" * 130_000, *["1,2,3,y"] * 60_000]
    (box / "d.csv").write_text("\n".join(lines))
    return train(box, write(box, net()), "d.csv")


@case("would unpack to")
def one_long_text(box):
    """a JSONL file of 2 MB with one long text"""
    lines = ['{"x": [1, 2, 3], "y": "b"}'] * 20_000
    lines.append('{"x": [1, 2, 3], "y": "' + "a" * 1_000_000 + '"}')
    (box / "d.jsonl").write_text("\n".join(lines))
    return train(box, write(box, net()), "d.jsonl")


@case("would unpack to")
def one_long_word(box):
    """a JSON line of 100,000 words, one of which is long"""
    words = ["a"] * 100_000 + ["b" * 100_000]
    (box / "d.jsonl").write_text(json.dumps({"x": words, "y": 1}) + "\n")
    return train(box, write(box, net()), "d.jsonl")


@case("it has 200,000 keys, and the limit is")
def many_keys(box):
    """a JSON line of 200,000 keys"""
    (box / "d.jsonl").write_text(json.dumps({f"k{i}": 1 for i in range(200_000)}) + "\n")
    return train(box, write(box, net()), "d.jsonl")


@case("half a character")
def half_a_character(box):
    r"""a label that JSON writes as \ud800, which no file can hold"""
    (box / "d.jsonl").write_text('{"x": [1, 2, 3], "y": "\\ud800"}\n')
    return train(box, write(box, net()), "d.jsonl")


@case("would unpack to")
def parquet_bomb(box):
    """a Parquet file of some KB with 40 million rows"""
    import pyarrow
    from pyarrow import parquet

    part = pyarrow.table({name: np.zeros(4_000_000) for name in ("x", "y")})
    with parquet.ParquetWriter(box / "d.parquet", part.schema) as file:
        for _ in range(10):
            file.write_table(part)
    return train(box, write(box, net()), "d.parquet")


@case("most classes have no rows")
def label_of_a_billion(box):
    """--classes auto, and one label is 10^9"""
    np.savez(box / "d.npz", x=np.zeros((12, 3), np.float32), y=np.arange(12) * 10**8)
    command = train(box, write(box, net()), "d.npz")
    return [*command[: command.index("--loss")], "--classes", "auto"]


@case("would upload the model to")
def run_that_uploads(box):
    """a stranger's run folder that would upload the model"""
    dataset(box)
    (box / "run").mkdir()
    settings = {"model": write(box, net()), "data": "d.npz", "output": "out.onnx", "push": "a/b"}
    (box / "run" / "args.json").write_text(json.dumps(settings))
    return ["train", "--resume", "run"]
