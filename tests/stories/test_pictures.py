"""Folders of pictures: a model from the net, a new head, and pictures changed at random."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from stories.made import SHAPES, peer, picture_net, pictures, read_csv
from stories.walk import ask, onnxgrad, save

from onnxgrad.cli import main
from onnxgrad.job.config import Config
from onnxgrad.job.run import TrainingJob
from onnxgrad.train.callbacks import Callback

image = pytest.importorskip("PIL.Image")

# What lies beside the models of a hub: cut 24 × 24 from pictures whose shorter side is 28, by ImageNet's statistics.
RECIPE = {
    "do_resize": True, "size": {"shortest_edge": 28}, "resample": 2,
    "do_center_crop": True, "crop_size": {"height": 24, "width": 24},
    "do_rescale": True, "rescale_factor": 1 / 255,
    "do_normalize": True, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def network(path: str, size: int | str = 24) -> None:
    """Two convolutions, the mean over the picture, ten classes."""
    make = onnx.helper.make_node
    conv = dict(strides=[2, 2], pads=[1, 1, 1, 1])
    nodes = [
        make("Conv", ["pixels", "k1", "b1"], ["c1"], kernel_shape=[5, 5], **conv),
        make("Relu", ["c1"], ["r1"]),
        make("Conv", ["r1", "k2", "b2"], ["c2"], kernel_shape=[3, 3], **conv),
        make("Relu", ["c2"], ["r2"]),
        make("GlobalAveragePool", ["r2"], ["p"]),
        make("Flatten", ["p"], ["f"]),
        make("Gemm", ["f", "w", "b"], ["logits"]),
    ]
    save(path, nodes, {"pixels": ["N", 3, size, size]}, {"logits": ["N", 10]}, picture_net())


def write(folder: str, each: int, seed: int) -> None:
    for number, (shape, pixels) in enumerate(pictures(each, seed)):
        Path(folder, shape).mkdir(parents=True, exist_ok=True)
        image.fromarray(pixels).save(f"{folder}/{shape}/{number:03}.png")


def test_five_classes_from_folders_with_a_new_head(capsys):
    """The peer: the same network and numbers in PyTorch (peers.py). The floor is five points below it, and 0.85."""
    Path("hub").mkdir()
    network("hub/model.onnx")
    Path("hub/preprocessor_config.json").write_text(json.dumps(RECIPE))
    write("photos", 30, 1)
    write("test", 20, 2)
    onnxgrad(
        "train hub/model.onnx --data photos -o t.onnx --classes auto --head-first 2 --epochs 20 --lr 0.01 --val 0 "
        "--batch-size 15"
    )
    said = " ".join(capsys.readouterr().out.split())
    assert "by preprocessor_config.json beside the model" in said
    assert "shorter side 28, 24×24 pixels from the middle, colour" in said
    assert "5 classes in the place of 10" in said
    assert "and the data have" not in said
    assert "the written model remembers how its inputs are made (pictures)" in said
    # nothing is typed again: the file knows the recipe and the names of its classes
    onnxgrad("eval t.onnx --data test --json")
    found = json.loads(capsys.readouterr().out)["accuracy"]
    assert found >= max(0.85, peer("pictures") - 0.05)
    # new pictures without folders: an answer by the name of each file
    Path("new").mkdir()
    for shape in SHAPES:
        Path(f"test/{shape}").rename(f"test/{shape}-away")
        for file in sorted(Path(f"test/{shape}-away").iterdir())[:4]:
            file.rename(f"new/{shape}-{file.name}")
    onnxgrad("predict t.onnx --data new -o answers.csv")
    rows = read_csv("answers.csv")
    assert [r["file"] for r in rows] == sorted(p.name for p in Path("new").iterdir())
    assert np.mean([r["file"].startswith(r["class"]) for r in rows]) >= 0.7
    numbers = np.array([[float(r[f"logits_{i}"]) for i in range(5)] for r in rows], np.float32)
    np.testing.assert_allclose(numbers, ask("t.onnx", pixels=by_hand(rows))[0], atol=1e-4)


def by_hand(rows: list[dict]) -> np.ndarray:
    """The recipe written out, as a program without onnxgrad would have it."""
    made = []
    for row in rows:
        picture = image.open(f"new/{row['file']}").convert("RGB")
        wide, high = picture.size
        short = 28 / min(wide, high)
        size = (28, int(high * short)) if wide < high else (int(wide * short), 28)
        pixels = np.asarray(picture.resize(size, image.BILINEAR), np.float32)
        top, left = (pixels.shape[0] - 24) // 2, (pixels.shape[1] - 24) // 2
        pixels = pixels[top : top + 24, left : left + 24] / 255
        made.append(((pixels - RECIPE["image_mean"]) / RECIPE["image_std"]).transpose(2, 0, 1))
    return np.array(made, np.float32)


class Stop(Callback):
    """An end in the middle of an epoch, as by a signal."""

    def on_step_end(self, loop, logs) -> None:
        if loop.trainer.steps == 7:
            raise KeyboardInterrupt


def test_a_resumed_run_changes_pictures_to_the_same_bits(capsys):
    network("model.onnx")
    write("photos", 6, 3)
    settings = dict(
        data="photos", classes="auto", epochs=3, batch_size=8, lr=0.01, mean="imagenet", std="imagenet",
        augment="flip,crop,rotate,colour,mixup",
    )  # fmt: skip
    TrainingJob("model.onnx", Config(**settings, output="a.onnx", run_dir="a")).start()
    job = TrainingJob("model.onnx", Config(**settings, output="b.onnx", run_dir="b"))
    with pytest.raises(KeyboardInterrupt):
        job.start(Stop())
    del job  # and with it the lock of its folder
    assert not Path("b.onnx").exists()
    onnxgrad("train --resume b --quiet")
    assert Path("a.onnx").read_bytes() == Path("b.onnx").read_bytes()
    plain = Config(**{**settings, "augment": ""}, output="c.onnx", run_dir="c")
    TrainingJob("model.onnx", plain).start()
    assert Path("c.onnx").read_bytes() != Path("a.onnx").read_bytes()


def test_changed_pictures_are_less_learned_by_heart(capsys):
    """Fifteen pictures are too few to tell the classes; the loss on others is smaller where they were changed."""
    network("model.onnx")
    write("photos", 3, 5)
    write("test", 8, 6)
    losses = []
    for more in ("", " --augment flip,crop=0.2,rotate=20,colour=0.3"):
        onnxgrad(
            f"train model.onnx --data photos --val test -o t.onnx --classes auto --epochs 40 --lr 0.01 --quiet{more}"
        )
        onnxgrad("eval t.onnx --data test --json")
        losses.append(json.loads(capsys.readouterr().out)["loss"])
    assert losses[1] < losses[0]


REFUSED = [
    ("--augment blur", "--augment has 'blur', expected some of flip, crop, rotate, colour, mixup"),
    ("--augment rotate=much", "--augment rotate=much: the strength is 'much', expected a number"),
    ("--augment mixup --loss nll", "--augment mixup needs the loss cross_entropy, and it is nll"),
    ("--crop 32", "takes pictures of 24 × 24, and --crop makes 32 × 32"),
    ("--resize big", "--resize is 'big', expected pixels such as 224, or HEIGHTxWIDTH"),
    ("--mean 0.5,0.5", "--mean has 2 numbers, and input 'pixels' takes pictures of 3 channels"),
    ("--mean red", "--mean is 'red', expected imagenet, or a number for each channel"),
    ("--std 0", "--std is '0', expected numbers above 0"),
    ("--rescale none", "--rescale is 'none', expected what bytes are multiplied by"),
]


@pytest.mark.parametrize(("flags", "message"), REFUSED)
def test_settings_of_pictures_that_mean_nothing_are_refused(flags, message, capsys):
    network("model.onnx")
    write("photos", 1, 0)
    line = f"train model.onnx --data photos -o t.onnx --classes auto --val 0 {flags}"
    assert main(line.split()) == 2
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()
