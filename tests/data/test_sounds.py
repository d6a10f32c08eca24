"""Sounds: every form of WAV and FLAC, channels, rates and lengths; what is refused is named by its file."""

from __future__ import annotations

import json
import struct
import wave
from pathlib import Path

import numpy as np
import onnx
import pytest
from job.problem import run
from stories.made import write_wav

from onnxgrad.data.folders import read_folder
from onnxgrad.data.preprocessor import read_config
from onnxgrad.data.sounds import SoundForm, Sounds, resampled
from onnxgrad.errors import DataError, LimitError
from onnxgrad.files import limits

TONE = 0.5 * np.sin(2 * np.pi * 440 * np.arange(800) / 8000)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def fitted(path: str, dims: list, form: SoundForm | None = None) -> np.ndarray:
    column = Sounds([Path(path)])
    column.fit("input 'x'", dims, np.dtype(np.float32), form or SoundForm())
    return column[[0]][0]


@pytest.mark.parametrize(("width", "error"), [(1, 1 / 128), (2, 1e-4), (3, 1e-6), (4, 1e-6)])
def test_plain_wav_of_every_width(width, error):
    scale = (1 << (8 * width - 1)) - 1
    whole = np.rint(TONE * scale).astype(np.int64)
    raw = b"".join(
        struct.pack("<B", v + 128) if width == 1 else int(v).to_bytes(width, "little", signed=True)
        for v in whole
    )
    with wave.open("a.wav", "wb") as file:
        file.setparams((1, width, 8000, 0, "NONE", ""))
        file.writeframes(raw)
    np.testing.assert_allclose(fitted("a.wav", [None, None]), TONE, atol=error)


def test_the_mean_of_the_channels():
    both = np.stack([TONE, -TONE], 1)
    with wave.open("a.wav", "wb") as file:
        file.setparams((2, 2, 8000, 0, "NONE", ""))
        file.writeframes(np.rint(both * 32767).astype("<i2").tobytes())
    assert np.abs(fitted("a.wav", [None, 800])).max() < 1e-4


@pytest.mark.parametrize("kind", ["FLAC", "WAV of floats"])
def test_other_files_by_soundfile(kind):
    soundfile = pytest.importorskip("soundfile")
    name, more = ("a.flac", {}) if kind == "FLAC" else ("a.wav", {"subtype": "FLOAT"})
    soundfile.write(name, TONE, 8000, **more)
    np.testing.assert_allclose(fitted(name, [None, 800]), TONE, atol=1e-4)


def damaged(rate: int = 8000, width: int = 2, size: int | None = None) -> None:
    """a.wav, 800 samples of silence behind a header that says what one likes."""
    data = bytes(800 * width)
    form = struct.pack("<IHHIIHH", 16, 1, 1, rate, rate * width, width, 8 * width)
    head = b"WAVEfmt " + form + b"data" + struct.pack("<I", len(data) if size is None else size)
    Path("a.wav").write_bytes(b"RIFF" + struct.pack("<I", len(head) + len(data)) + head + data)


@pytest.mark.parametrize(
    ("header", "words"),
    [({"rate": 0}, "has 0 samples a second, expected 1 to 10,000,000"),
     ({"rate": 10_000_001}, "has 10,000,001 samples a second"), ({"width": 5}, r"a\.wav")],
    ids=str,
)  # fmt: skip
def test_headers_that_no_sound_has(header, words):
    damaged(**header)
    with pytest.raises(DataError, match=words):
        fitted("a.wav", [None, None])


def test_a_header_that_lies_about_the_length_is_not_believed():
    damaged(size=2**31)
    assert len(fitted("a.wav", [None, None])) < 900


def test_rates_too_far_apart_and_sounds_too_long():
    write_wav("a.wav", TONE)
    with pytest.raises(DataError, match="too far apart to resample"):
        fitted("a.wav", [None, None], SoundForm(rate=8_000_001))
    with limits.override(samples=799), pytest.raises(LimitError, match="--limit samples=800"):
        fitted("a.wav", [None, None])
    with limits.override(samples=800):
        fitted("a.wav", [None, None])
        with pytest.raises(LimitError, match=r"a\.wav is too long"):
            fitted("a.wav", [None, 8], SoundForm(rate=16_000))


def test_a_filter_that_reaches_far():
    noise = np.random.default_rng(0).standard_normal(3000)
    far = resampled(noise, 48_000, 500)
    at = np.arange(len(far)) * 96.0
    offsets = np.arange(-1536, 1537)
    padded = np.concatenate([np.zeros(1536), noise, np.zeros(1537)])
    distance = (np.floor(at).astype(int)[:, None] + offsets) - at[:, None]
    window = np.i0(8.0 * np.sqrt(np.clip(1 - (distance / 1537) ** 2, 0, 1))) / np.i0(8.0)
    taps = np.sinc(distance / 96) / 96 * window
    expected = (padded[np.floor(at).astype(int)[:, None] + offsets + 1536] * taps).sum(1)
    np.testing.assert_allclose(far, expected, atol=1e-7)


@pytest.mark.parametrize("dims", [[None, 1000], [None, 1, 1000], [None, 1000, 1]], ids=str)
def test_silence_behind_a_short_sound_and_the_axes_of_the_model(dims):
    write_wav("a.wav", TONE)
    found = fitted("a.wav", dims)
    assert list(found.shape) == dims[1:]
    np.testing.assert_allclose(found.ravel()[:800], TONE, atol=1e-4)
    assert np.abs(found.ravel()[800:]).max() == 0


def test_each_sound_to_mean_0_and_deviation_1():
    write_wav("a.wav", TONE + 0.2)
    found = fitted("a.wav", [None, 900], SoundForm(normalize=True))
    assert found[:800].mean() == pytest.approx(0, abs=1e-4)
    assert found[:800].std() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("rate", "target"), [(8000, 16000), (16000, 8000), (44100, 16000), (8000, 22050)]
)
def test_a_tone_stays_a_tone_at_another_rate(rate, target):
    """Away from the ends, where there is nothing to interpolate with."""
    before = np.sin(2 * np.pi * 440 * np.arange(rate // 4) / rate).astype(np.float32)
    after = resampled(before, rate, target)
    expected = np.sin(2 * np.pi * 440 * np.arange(len(after)) / target)
    assert len(after) == pytest.approx(target / 4, abs=1)
    inner = slice(len(after) // 8, -len(after) // 8)
    np.testing.assert_allclose(after[inner], expected[inner], atol=2e-3)


def test_what_the_lower_rate_cannot_hold_is_gone():
    high = np.sin(2 * np.pi * 7000 * np.arange(4000) / 16000).astype(np.float32)
    assert np.abs(resampled(high, 16000, 8000)[200:-200]).max() < 0.01


def test_rates_that_differ_are_refused_until_one_is_named():
    write_wav("a.wav", TONE)
    write_wav("b.wav", TONE, rate=16000)
    column = Sounds([Path("a.wav"), Path("b.wav")])
    with pytest.raises(
        DataError,
        match=r"b.wav has 16,000 samples a second, and a.wav has 8,000.*--sample-rate 16000",
    ):
        column.fit("input 'x'", [None, 100], np.dtype(np.float32), SoundForm())
    column.fit("input 'x'", [None, 100], np.dtype(np.float32), SoundForm(rate=8000))
    assert column.notes[0] == "sounds: 1 of 2 files have another rate and are resampled"
    assert column.notes[1] == "sounds: 2 of 2 files are longer, and cut at 0.0125 s"


def test_a_recipe_of_a_hub():
    settings = {
        "feature_extractor_type": "Wav2Vec2FeatureExtractor",
        "sampling_rate": 16000,
        "do_normalize": True,
    }
    Path("preprocessor_config.json").write_text(json.dumps(settings))
    assert read_config(Path("preprocessor_config.json"))[1] == SoundForm(16000, None, True)


def test_what_is_no_sound_is_named():
    Path("sounds/yes").mkdir(parents=True)
    Path("sounds/yes/a.wav").write_bytes(b"no sound at all")
    column = read_folder(Path("sounds")).arrays["sound"]
    with pytest.raises(DataError, match=r"sounds/yes/a.wav"):
        column.fit("input 'x'", [None, 100], np.dtype(np.float32), SoundForm())
    with pytest.raises(DataError, match="takes float32 of rank 4, and sounds are floats"):
        column.fit("input 'x'", [None, 1, 80, 100], np.dtype(np.float32), SoundForm())


def test_rate_and_length_from_the_command(capsys):
    """A model of any length: what was used in training is used again."""
    for number in range(8):
        Path("sounds", "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        write_wav(f"sounds/{'ab'[number % 2]}/{number}.wav", TONE * (number % 2))
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N, T] x) => (float[N, 2] y) <int64[1] one = {1}, float[1, 2] w = {1, -1}>
        { q = Mul(x, x)  s = ReduceSum(q, one)  y = MatMul(s, w) }""")
    onnx.save(model, "m.onnx")
    line = [
        "--data",
        "sounds",
        "-o",
        "t.onnx",
        "--epochs",
        1,
        "--sample-rate",
        4000,
        "--seconds",
        0.05,
    ]
    code, out, err = run(capsys, "train", "m.onnx", *line)
    assert (code, err) == (0, "")
    said = " ".join(out.split())
    assert "sounds: 200 samples at 4,000 Hz (0.05 s), one channel" in said
    assert "8 of 8 files have another rate and are resampled" in said
    code, out, _ = run(capsys, "eval", "t.onnx", "--data", "sounds")
    assert (
        "200 samples at 4,000 Hz (0.05 s), one channel (as in the training of the model)"
        in " ".join(out.split())
    )
    code, _, err = run(capsys, "train", "m.onnx", *line[:-4], "--seconds", 1)
    assert "--seconds needs --sample-rate" in err
