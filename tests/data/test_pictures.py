"""Pictures as a model wants them: sizes, statistics, the recipes of hubs, the order of classes, folders of any kind."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from job.problem import run

from onnxgrad.data import pixels as bytes_of
from onnxgrad.data.folders import read_folder
from onnxgrad.data.forms import Forms
from onnxgrad.data.images import Images, PictureForm
from onnxgrad.data.preprocessor import read_config
from onnxgrad.data.read import read
from onnxgrad.errors import DataError, LimitError
from onnxgrad.files import limits

image = pytest.importorskip("PIL.Image")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def photo(path: str, height: int = 20, width: int = 30, seed: int = 0, **more) -> np.ndarray:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(pixels).save(path, **more)
    return pixels


def fitted(form: PictureForm, dims: list, path: str = "a.png", dtype=np.float32) -> np.ndarray:
    column = Images([Path(path)])
    column.fit("input 'x'", dims, np.dtype(dtype), form)
    return column[[0]][0]


def test_the_shorter_side_then_the_middle():
    pixels = photo("a.png")
    found = fitted(PictureForm(resize=(10,), crop=(8, 8)), [None, 3, 8, 8])
    small = np.asarray(image.fromarray(pixels).resize((15, 10), image.BILINEAR))
    np.testing.assert_array_equal(found, (small[1:9, 3:11] / np.float32(255)).transpose(2, 0, 1))


def test_the_middle_of_a_small_picture_has_black_around_it():
    pixels = photo("a.png", 3, 5)
    found = fitted(PictureForm(crop=(5, 5), rescale=1.0), [None, 3, 5, 5]).transpose(1, 2, 0)
    np.testing.assert_array_equal(found[1:4], pixels)
    assert found[0].max() == found[4].max() == 0


def test_mean_and_deviation_by_channel_and_for_all():
    pixels = photo("a.png", 4, 4).astype(np.float64) / 255
    found = fitted(PictureForm(mean=(0.1, 0.2, 0.3), std=(0.5,)), [None, 3, 4, 4])
    np.testing.assert_allclose(
        found, ((pixels - [0.1, 0.2, 0.3]) / 0.5).transpose(2, 0, 1), atol=1e-6
    )


def test_channels_last_is_seen_or_said():
    pixels = photo("a.png", 4, 4)
    seen = fitted(PictureForm(), [None, 4, 4, 3], dtype=np.uint8)
    np.testing.assert_array_equal(seen, pixels)
    said = fitted(PictureForm(channels_last=True, rescale=1.0), [None, None, None, 3])
    np.testing.assert_array_equal(said, pixels)


def test_a_camera_that_was_held_upright():
    """Orientation 6: the picture is shown turned by a quarter."""
    exif = image.Exif()
    exif[0x0112] = 6
    pixels = photo("a.png", 4, 6, exif=exif)
    found = fitted(PictureForm(rescale=1.0), [None, 3, None, None]).transpose(1, 2, 0)
    np.testing.assert_array_equal(found, np.rot90(pixels, -1))


# ---- preprocessor_config.json

RECIPES = [
    ("a ViT", {"size": 224, "image_mean": [0.5] * 3, "image_std": [0.5] * 3},
     PictureForm((224,), (), "bilinear", 1 / 255, (0.5,) * 3, (0.5,) * 3)),
    ("height and width", {"size": {"height": 32, "width": 48}, "resample": 3, "do_normalize": False},
     PictureForm((32, 48), (), "bicubic", 1 / 255)),
    ("a crop", {"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": 224, "do_rescale": False},
     PictureForm((256,), (224, 224), "bilinear", 1.0)),
    ("a ConvNeXt", {"size": {"shortest_edge": 224}, "crop_pct": 0.875},
     PictureForm((256,), (224, 224), "bilinear", 1 / 255)),
    ("no resizing", {"do_resize": False, "size": 9, "rescale_factor": 0.5, "image_mean": [0], "image_std": [1]},
     PictureForm((), (), "bilinear", 0.5, (0.0,), (1.0,))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "form"), [r[1:] for r in RECIPES], ids=[r[0] for r in RECIPES]
)
def test_recipes_of_hubs(settings, form):
    Path("preprocessor_config.json").write_text(json.dumps(settings))
    assert read_config(Path("preprocessor_config.json"))[0] == form


@pytest.mark.parametrize(
    "settings",
    [
        [],
        {"size": "large"},
        {"size": {"edge": 3}},
        {"size": -1},
        {"size": 9, "resample": 77},
        {"size": math.inf},
        {"image_mean": [10**400], "image_std": [1]},
        {"image_mean": [0], "image_std": [0]},
        {"sampling_rate": math.inf},
        {"size": 9, "resample": math.inf},
    ],
)
def test_a_recipe_that_is_none_is_refused_by_its_name(settings):
    Path("preprocessor_config.json").write_text(json.dumps(settings))
    with pytest.raises(DataError, match=r"preprocessor_config\.json"):
        read_config(Path("preprocessor_config.json"))


def test_what_is_written_into_a_model_comes_back():
    form = PictureForm((256,), (224, 224), "bicubic", 1 / 255, (0.5,), (0.25,), True, 3)
    forms = Forms(pictures=form, constants={"sr": 16000.0})
    again = Forms.from_json(forms.to_json({"pictures"}))
    assert again.pictures == form
    assert again.constants == {"sr": 16000.0}


@pytest.mark.parametrize("text", ["[1]", "{", '{"pictures": {"resize": "big"}}', '{"pictures": {"mean": ["x"]}}',
                                  '{"pictures": {"resample": "magic"}}', '{"constants": {"sr": "fast"}}',
                                  '{"pictures": [1]}', '{"pictures": {"resize": [1, 2, 3]}}',
                                  '{"pictures": {"crop": [5]}}', '{"pictures": {"resize": [0]}}',
                                  '{"pictures": {"resize": [true]}}',
                                  '{"pictures": {"std": [0]}}', '{"pictures": {"mean": [NaN]}}',
                                  '{"pictures": {"channels": 7}}', '{"pictures": {"rescale": 1' + "0" * 400 + "}}",
                                  '{"constants": {"sr": 1' + "0" * 400 + "}}", '{"sounds": {"rate": 0}}',
                                  '{"sounds": {"rate": 10000001}}', '{"sounds": {"length": -1}}',
                                  '{"texts": {"length": 0}}', '{"texts": {"length": 1048577}}', "[" * 200])  # fmt: skip
def test_metadata_of_strangers_are_not_believed(text):
    with pytest.raises(DataError, match=r"metadata 'onnxgrad.inputs' are damaged"):
        Forms.from_json(text)


def test_what_comes_out_is_bounded_by_the_limit_of_pictures():
    photo("a.png", 4, 8)
    for form in (
        PictureForm(resize=(20, 20)),
        PictureForm(crop=(20, 20)),
        PictureForm((15,), (4, 4)),
    ):
        fitted(form, [None, 3, None, None])
        with limits.override(pixels=399), pytest.raises(LimitError, match="--limit pixels="):
            fitted(form, [None, 3, None, None])


def test_a_program_is_not_a_picture(monkeypatch):
    """PostScript under the name of a picture would be run by Ghostscript, where there is one."""
    Path("a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n")
    with pytest.raises(DataError, match=r"a\.png cannot be read as an image"):
        Images([Path("a.png")])


@pytest.mark.parametrize("ending", ["png", "jpg", "bmp", "gif", "webp", "tif"])
def test_every_ending_is_read(ending):
    photo(f"a.{ending}", 4, 4)
    assert fitted(PictureForm(), [None, 3, 4, 4], f"a.{ending}").shape == (3, 4, 4)


# ---- folders


def test_classes_in_the_order_of_a_file():
    for name in ("ant", "bee", "cat"):
        photo(f"photos/{name}/1.png")
    assert read_folder(Path("photos")).classes == ["ant", "bee", "cat"]
    Path("photos/classes.txt").write_text("cat\nant\nbee\ndog\n")
    assert read_folder(Path("photos")).classes == ["cat", "ant", "bee", "dog"]
    Path("photos/classes.txt").write_text("cat\nant\n")
    with pytest.raises(DataError, match="does not list the class 'bee'"):
        read_folder(Path("photos"))


def test_parts_of_a_dataset_are_no_classes():
    photo("photos/train/1.png")
    photo("photos/val/1.png")
    with pytest.raises(
        DataError, match="which are parts of a dataset, not classes: --data photos/train"
    ):
        read_folder(Path("photos"))


def test_a_list_names_files_from_where_it_lies():
    photo("far/photos/1.png")
    Path("far/list.csv").write_text("path,label\nphotos/1.png,cat\n")
    table = read("far/list.csv")
    assert table.columns["path"].shape == (3, 20, 30)
    assert table.names == ["photos/1.png"]
    Path("far/list.csv").write_text("path,label\nphotos/1.png,cat\nphotos/2.png,cat\n")
    with pytest.raises(
        DataError, match=r"line 3: column 'path' names 'photos/2.png', and there is no file"
    ):
        read("far/list.csv")


def network(path: str, shape: str = "N, 3, 4, 4") -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[{shape}] picture) => (float[N, 2] y)
        {{ flat = Flatten(picture)  y = MatMul(flat, w) }}""")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((48, 2), np.float32), "w"))
    onnx.save(model, path)


def test_the_written_model_remembers_what_was_typed(capsys):
    for number in range(8):
        photo(f"photos/{'ab'[number % 2]}/{number}.png", seed=number)
    network("m.onnx", "N, 4, 4, 3")
    flags = ["--resize", "6", "--crop", "4", "--mean", "0.5", "--std", "0.25", "--channels-last"]
    line = ["--data", "photos", "-o", "t.onnx", "--epochs", 5, *flags]
    code, _, err = run(capsys, "train", "m.onnx", *line)
    assert (code, err) == (0, "")
    code, out, _ = run(capsys, "eval", "t.onnx", "--data", "photos")
    assert code == 0
    said = " ".join(out.split())
    assert (
        "shorter side 6, 4×4 pixels from the middle, colour, numbers from 0 to 1, minus the mean 0.5"
        in said
    )
    assert "(as in the training of the model)" in said
    code, first, _ = run(capsys, "eval", "t.onnx", "--data", "photos", "--json")
    code, again, _ = run(capsys, "eval", "t.onnx", "--data", "photos", "--json", *flags)
    code, other, _ = run(capsys, "eval", "t.onnx", "--data", "photos", "--json", "--mean", "0")
    assert first == again != other
    # a folder that lacks a class keeps the model's numbers of the others
    Path("photos/a").rename("away")
    assert run(capsys, "predict", "t.onnx", "--data", "photos", "-o", "p.csv")[0] == 0
    code, out, _ = run(capsys, "eval", "t.onnx", "--data", "photos")
    assert "numbered as in the model's own list of 2 classes" in " ".join(out.split())


def test_weights_of_classes_in_the_order_of_a_file(capsys):
    """Three of a and six of b, listed as b, a: a row of a counts twice as much."""
    for number in range(9):
        photo(f"photos/{'abb'[number % 3]}/{number}.png", seed=number)
    Path("photos/classes.txt").write_text("b\na\n")
    network("m.onnx")
    line = [
        "--data",
        "photos",
        "-o",
        "t.onnx",
        "--epochs",
        1,
        "--val",
        0,
        "--class-weights",
        "balanced",
    ]
    code, out, err = run(capsys, "train", "m.onnx", *line)
    assert (code, err) == (0, "")
    assert "class weights, balanced: b 0.75, a 1.5" in " ".join(out.split())


@pytest.mark.parametrize("ending", ["png", "tiff"])
def test_a_picture_of_16_bits_is_read_in_8(ending):
    """Everything above 255 was white."""
    grey = np.arange(0, 256, 4, dtype=np.uint16).reshape(8, 8)
    for degrees in (1, 6):
        exif = image.Exif()
        exif[0x0112] = degrees
        image.fromarray(grey * 257).save(f"{degrees}.{ending}", exif=exif)
        for channels in (1, 3):
            made = bytes_of.decode(Path(f"{degrees}.{ending}"), channels, (), "nearest")
            upright = grey if degrees == 1 else np.rot90(grey, -1)
            np.testing.assert_array_equal(made, np.repeat(upright[..., None], channels, 2))


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_numbers_that_do_not_say_what_is_white_are_refused(dtype):
    image.fromarray(np.ones((4, 4), dtype)).save("a.tiff")
    with pytest.raises(DataError, match=r"a\.tiff holds numbers of 32 bits"):
        bytes_of.decode(Path("a.tiff"), 1, (), "nearest")


@pytest.mark.parametrize(
    ("mode", "channels"), [("L", 1), ("1", 1), ("RGB", 3), ("RGBA", 3), ("P", 3), ("I;16", 1)]
)
def test_what_a_picture_is(mode, channels, tmp_path):
    image.new(mode, (30, 20)).save(tmp_path / "p.png")
    assert bytes_of.look(tmp_path / "p.png") == ((20, 30), channels)


SIZES = [((20, 30), (), (20, 30)), ((20, 30), (10,), (10, 15)), ((30, 20), (10,), (15, 10)), ((20, 20), (7,), (7, 7)),
         ((20, 31), (7,), (7, 10)), ((31, 20), (7,), (10, 7)), ((20, 30), (5, 9), (5, 9))]  # fmt: skip


@pytest.mark.parametrize(("size", "resize", "made"), SIZES)
def test_sizes(size, resize, made):
    assert bytes_of.target_size(size, resize) == made


def test_the_middle():
    rows = np.arange(5 * 6).reshape(5, 6, 1)
    np.testing.assert_array_equal(bytes_of.centre(rows, (3, 2)), rows[1:4, 2:4])
    np.testing.assert_array_equal(bytes_of.centre(rows, (2, 3)), rows[1:3, 1:4])
    assert bytes_of.centre(rows, ()) is rows
    wide = bytes_of.centre(rows, (8, 4))
    np.testing.assert_array_equal(wide[1:6], rows[:, 1:5])
    assert not wide[0].any()
    assert not wide[6:].any()
