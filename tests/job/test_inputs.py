"""Flags that say how inputs are made: what each of them means, and who is believed where several speak."""

from __future__ import annotations

import json

import onnx_ir as ir
import pytest

from onnxgrad.data.forms import KEY
from onnxgrad.data.images import PictureForm
from onnxgrad.data.matched import Feed, Matched
from onnxgrad.data.sounds import SoundForm
from onnxgrad.errors import ConfigError
from onnxgrad.job.inputs import check_flags, read_forms

MODEL = ir.Model(ir.Graph([], [], nodes=[]), ir_version=8)


def forms(path=None, model=MODEL, **flags):
    return read_forms(path, model, flags)


PICTURES = [
    ({}, {}),
    ({"resize": "224"}, {"resize": (224,)}),
    ({"resize": "224x192"}, {"resize": (224, 192)}),
    ({"resize": "8 × 9"}, {"resize": (8, 9)}),
    ({"crop": "32"}, {"crop": (32, 32)}),
    ({"crop": "32X16"}, {"crop": (32, 16)}),
    ({"mean": "0.5"}, {"mean": (0.5,)}),
    ({"mean": "-1,0,2e-1"}, {"mean": (-1, 0, 0.2)}),
    ({"mean": "imagenet"}, {"mean": (0.485, 0.456, 0.406)}),
    ({"std": "imagenet"}, {"std": (0.229, 0.224, 0.225)}),
    ({"std": "1,2"}, {"std": (1, 2)}),
    ({"rescale": "1/255"}, {"rescale": 1 / 255}),
    ({"rescale": "-2"}, {"rescale": -2}),
    ({"channels_last": True}, {"channels_last": True}),
    ({"channels_last": False}, {}),
]


@pytest.mark.parametrize(("flags", "made"), PICTURES, ids=[str(p[0]) for p in PICTURES])
def test_flags_of_pictures(flags, made):
    assert forms(**flags).pictures == PictureForm(**made)


def test_flags_of_sounds():
    assert forms(sample_rate=8000).sounds == SoundForm(rate=8000)
    assert forms(sample_rate=8000, seconds=0.5).sounds == SoundForm(rate=8000, length=4000)
    assert forms(sample_rate=3, seconds=0.5).sounds.length == 2  # of 1.5
    assert forms(sample_rate=3, seconds=0.1).sounds.length == 1
    with pytest.raises(ConfigError, match="--seconds needs --sample-rate"):
        forms(seconds=1.0)


def test_constants():
    assert forms(constant="a=1, b=-2.5").constants == {"a": 1.0, "b": -2.5}
    assert forms().constants == {}


REFUSED = [
    ({"resize": "big"}, "--resize is 'big', expected pixels such as 224, or HEIGHTxWIDTH"),
    ({"resize": "0"}, "--resize is '0'"), ({"resize": "1x2x3"}, "--resize is '1x2x3'"), ({"crop": "4x0"}, "--crop is"),
    ({"mean": "red"}, "--mean is 'red', expected imagenet, or a number for each channel"),
    ({"mean": "inf"}, "--mean is 'inf'"), ({"mean": ","}, "--mean is ','"), ({"std": "1,x"}, "--std is '1,x'"),
    ({"std": "1,0"}, "--std is '1,0', expected numbers above 0"), ({"std": "-1"}, "--std is '-1'"),
    ({"rescale": "none"}, "--rescale is 'none', expected what bytes are multiplied by"),
    ({"rescale": "0"}, "--rescale is '0'"), ({"rescale": "1/0"}, "--rescale is '1/0'"),
    ({"rescale": "inf"}, "--rescale is 'inf'"), ({"rescale": "1/x"}, "--rescale is '1/x'"),
    ({"constant": "a"}, "--constant is 'a', expected input=number"),
    ({"constant": "=1"}, "--constant is '=1'"), ({"constant": "a=x"}, "--constant is 'a=x'"),
    ({"text": "a,b,c"}, "--text names 3 columns, expected one, or two for a pair"),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "said"), REFUSED, ids=[str(r[0]) for r in REFUSED])
def test_what_means_nothing_is_refused(flags, said):
    with pytest.raises(ConfigError) as caught:
        forms(**flags)
    assert str(caught.value).startswith(said)


def model_that_says(**kinds) -> ir.Model:
    return ir.Model(
        ir.Graph([], [], nodes=[]), ir_version=8, metadata_props={KEY: json.dumps(kinds)}
    )


def test_a_flag_wins_over_the_model():
    told = model_that_says(pictures={"resize": [64], "crop": [32, 32], "mean": [0.1]}, sounds={"rate": 8000},
                           constants={"a": 1})  # fmt: skip
    found = forms(model=told)
    assert found.pictures == PictureForm(resize=(64,), crop=(32, 32), mean=(0.1,))
    assert set(found.origin.values()) == {"as in the training of the model"}
    assert set(found.origin) == {"pictures", "sounds", "texts"}
    other = forms(model=told, mean="0.5", constant="b=2")
    assert other.pictures == PictureForm(resize=(64,), crop=(32, 32), mean=(0.5,))
    assert (other.constants, set(other.origin)) == ({"a": 1.0, "b": 2.0}, {"sounds", "texts"})
    assert forms(model=told, resize="48").pictures.crop == (), (
        "of another size the crop is another one, too"
    )
    assert forms(model=told, seconds=2.0).sounds == SoundForm(rate=8000, length=16000)


def test_files_beside_the_model_are_read_where_it_says_nothing(tmp_path):
    recipe = {"image_mean": [0.2], "image_std": [0.4], "image_processor_type": "Any"}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(recipe))
    (tmp_path / "onnx").mkdir()
    for path in (tmp_path / "m.onnx", tmp_path / "onnx" / "m.onnx"):
        found = forms(str(path))
        assert (found.pictures.mean, found.pictures.std) == ((0.2,), (0.4,))
        assert found.origin["pictures"] == "by preprocessor_config.json beside the model"
    assert forms(
        str(tmp_path / "m.onnx"), model_that_says(pictures={"mean": [0.7]})
    ).pictures.mean == (0.7,)
    (tmp_path / "other").mkdir()
    assert forms(str(tmp_path / "other" / "m.onnx")).pictures == PictureForm()


def matched(*kinds: str) -> Matched:
    return Matched({"x": Feed(["x"], None, None), "y": Feed(["y"], None, None)}, kinds=set(kinds))


@pytest.mark.parametrize(
    ("flag", "kind", "what"),
    [("resize", "pictures", "pictures"), ("channels_last", "pictures", "pictures"), ("sample_rate", "sounds", "sounds"),
     ("seconds", "sounds", "sounds"), ("tokenizer", "texts", "text"), ("max_length", "texts", "text")],
)  # fmt: skip
def test_flags_of_what_the_data_have_not(flag, kind, what):
    check_flags({flag: 1}, matched(kind))
    others = {"pictures", "sounds", "texts"} - {kind}
    with pytest.raises(ConfigError) as caught:
        check_flags({flag: 1}, matched(*others))
    assert str(caught.value) == f"--{flag.replace('_', '-')} is for {what}, and the data have none"


def test_constants_of_inputs_that_are_not_there():
    check_flags({"constant": "x=1"}, matched())
    with pytest.raises(ConfigError) as caught:
        check_flags({"constant": "x=1,z=2"}, matched())
    assert str(caught.value) == "--constant: the model has no input 'z'; its inputs are 'x', 'y'"
