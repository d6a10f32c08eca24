"""A column of sounds: waveforms in -1 … 1, one channel, at one rate and length. WAV by the standard library.

FLAC, Ogg and WAV of floats need the package `soundfile`; this is the only file that knows it.
"""

from __future__ import annotations

import io
import math
import wave
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from onnxgrad.errors import DataError
from onnxgrad.files import limits
from onnxgrad.files.paths import read_bytes

ENDINGS = {".wav", ".flac", ".ogg"}
CACHE_BYTES = 512 << 20  # waveforms that are kept
ZEROS = 16  # of the sinc on either side: how sharp the filter of a resampling is
MOST_RATE = 10_000_000  # samples a second, as --sample-rate
MOST_FACTOR = 1000  # between two rates: nobody means to resample by more
LOOKED_AT = 1 << 14  # files whose headers are read to find rate and length


@dataclass(frozen=True)
class SoundForm:
    """rate: samples a second. length: samples; shorter sounds are followed by silence, longer ones cut.

    normalize: each sound to mean 0 and deviation 1. None is not said, and follows from the model and the files.
    """

    rate: int | None = None
    length: int | None = None
    normalize: bool = False

    def checked(self) -> SoundForm:
        """Return the form. Raises ValueError for what no sound has: models and files of strangers say it."""
        for name in ("rate", "length"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"{name} is {value!r:.60}, expected 1 or more")
        if self.rate is not None and self.rate > MOST_RATE:
            raise ValueError(f"rate is {self.rate!r:.60}, expected at most {MOST_RATE:,}")
        return self

    def __str__(self) -> str:
        text = f"{self.length:,} samples at {self.rate:,} Hz ({self.length / self.rate:.3g} s), one channel"
        return text + (", each to mean 0 and deviation 1" if self.normalize else "")


class Sounds:
    """Waveforms as an array: [rows, samples], float32, until `fit` says otherwise."""

    def __init__(self, paths: list[Path]):
        self.paths = paths
        self.dtype = np.dtype(np.float32)
        self.form = SoundForm()
        self.notes: list[str] = []
        self._axes: tuple[int, ...] = ()  # of length 1, in a row
        self._cache: dict[int, np.ndarray] = {}
        self._cached = 0

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.paths), self.form.length or 1)

    def fit(self, who: str, dims: list[int | None], dtype: np.dtype, form: SoundForm) -> None:
        """Give the sounds the form that an input of a model wants: [N, samples], [N, 1, samples] or [N, samples, 1]."""
        if np.dtype(dtype).kind != "f" or len(dims) not in (2, 3):
            raise DataError(
                f"{who} takes {np.dtype(dtype)} of rank {len(dims)}, and sounds are floats [rows, samples]: a model "
                "that takes spectra needs its own front end, as .npz"
            )
        self._axes = () if len(dims) == 2 else (1,) if dims[2] != 1 else (2,)
        wanted = dims[1] if len(dims) == 2 or self._axes == (2,) else dims[2]
        if len(dims) == 3 and dims[1 if self._axes == (1,) else 2] not in (1, None):
            raise DataError(f"{who} takes {dims[1]} channels, and sounds are made one channel")
        if isinstance(wanted, int) and form.length not in (None, wanted):
            raise DataError(f"{who} takes {wanted:,} samples, and --seconds makes {form.length:,}")
        self.dtype, self._cache, self._cached = np.dtype(dtype), {}, 0
        headers = [_header(path) for path in self.paths[:LOOKED_AT]]
        rate = form.rate or self._one_rate([h[0] for h in headers])
        for path, (own, _) in zip(self.paths, headers, strict=False):
            if not 1 / MOST_FACTOR <= own / rate <= MOST_FACTOR:
                raise DataError(
                    f"{path} has {own:,} samples a second, and {who} takes {rate:,}: too far apart to resample"
                )
        length = wanted if isinstance(wanted, int) else form.length
        if length is None:
            length = max(math.ceil(count * rate / own) for own, count in headers)
        limits.check("samples", length, f"{who} takes {length:,} samples of each sound")
        self.form = replace(form, rate=rate, length=length)
        self._say(headers)

    def _one_rate(self, rates: list[int]) -> int:
        """The rate of the files, where all have the same: to resample unasked would hide a mistake."""
        for path, rate in zip(self.paths, rates, strict=False):
            if rate != rates[0]:
                raise DataError(
                    f"{path} has {rate:,} samples a second, and {self.paths[0]} has {rates[0]:,}: say what the model "
                    f"expects with --sample-rate, such as --sample-rate {max(rates)}; other files are resampled"
                )
        return rates[0]

    def _say(self, headers: list[tuple[int, int]]) -> None:
        form, self.notes = self.form, []
        other = sum(rate != form.rate for rate, _ in headers)
        if other:
            self.notes.append(
                f"sounds: {other:,} of {len(headers):,} files have another rate and are resampled"
            )
        counts = [math.ceil(count * form.rate / rate) for rate, count in headers]
        longer = sum(c > form.length for c in counts)
        if longer:
            self.notes.append(
                f"sounds: {longer:,} of {len(headers):,} files are longer, and cut at {form.length / form.rate:.3g} s"
            )

    def __getitem__(self, rows) -> np.ndarray:
        if isinstance(rows, slice):
            rows = range(*rows.indices(len(self)))
        made = np.stack([self._waveform(int(row)) for row in rows]).astype(self.dtype, copy=False)
        return np.expand_dims(made, self._axes) if self._axes else made

    def _waveform(self, row: int) -> np.ndarray:
        if row in self._cache:
            return self._cache[row]
        rate, samples = _read(self.paths[row])
        if not len(samples):
            raise DataError(f"{self.paths[row]} holds no samples")
        form = self.form
        target = form.rate or rate
        limits.check("samples", len(samples) * target // rate, f"{self.paths[row]} is too long")
        samples = resampled(samples, rate, target)
        length = form.length or len(samples)
        samples = samples[:length]
        if form.normalize:
            samples = (samples - samples.mean()) / np.sqrt(samples.var() + 1e-7)
        made = np.zeros(length, np.float32)
        made[: len(samples)] = samples
        if self._cached + made.nbytes <= CACHE_BYTES:
            self._cache[row] = made
            self._cached += made.nbytes
        return made


def resampled(samples: np.ndarray, rate: int, target: int) -> np.ndarray:
    """Another rate, by a sinc under a Kaiser window: y(t) = Σ x_n·g(t - n), cut off at the lower of both rates."""
    if rate == target or not len(samples):
        return samples
    cutoff = min(1.0, target / rate)
    count = math.ceil(len(samples) * target / rate)
    reach = math.ceil(ZEROS / cutoff)
    offsets = np.arange(-reach, reach + 1)
    padded = np.concatenate([np.zeros(reach), samples, np.zeros(reach + 1)])
    made = np.empty(count)
    step = max(1, min(1 << 14, (1 << 22) // len(offsets)))  # of some 32 MiB
    for begin in range(0, count, step):
        at = np.arange(begin, min(count, begin + step)) * (rate / target)
        first = np.floor(at).astype(int)
        distance = (first[:, None] + offsets) - at[:, None]
        window = np.i0(8.0 * np.sqrt(np.clip(1 - (distance / (reach + 1)) ** 2, 0, 1))) / np.i0(8.0)
        taps = cutoff * np.sinc(cutoff * distance) * window
        made[begin : begin + len(at)] = (padded[first[:, None] + offsets + reach] * taps).sum(1)
    return made.astype(np.float32)


def _header(path: Path) -> tuple[int, int]:
    """Samples a second, and how many there are."""
    content = read_bytes(path, "a sound")
    try:
        with wave.open(io.BytesIO(content), "rb") as file:
            held = len(content) // (file.getsampwidth() * file.getnchannels())
            return _rate(path, file.getframerate()), min(file.getnframes(), held)
    except (wave.Error, EOFError):
        package = _soundfile(path)
    try:
        info = package.info(io.BytesIO(content))
    except Exception as error:  # libsndfile's own class, and bare ones
        text = getattr(error, "error_string", error)
        raise DataError(f"{path} cannot be read as a sound: {text}") from error
    return _rate(path, info.samplerate), info.frames


def _rate(path: Path, rate: int) -> int:
    if not 1 <= rate <= MOST_RATE:
        raise DataError(f"{path} has {rate:,} samples a second, expected 1 to {MOST_RATE:,}")
    return rate


def _read(path: Path) -> tuple[int, np.ndarray]:
    """Samples a second, and the mean of the channels, float32 in -1 … 1."""
    content = read_bytes(path, "a sound")
    try:
        with wave.open(io.BytesIO(content), "rb") as file:
            width, channels = file.getsampwidth(), file.getnchannels()
            if width not in (1, 2, 3, 4):
                raise wave.Error(f"{width} bytes for a sample")
            rate, raw = file.getframerate(), file.readframes(file.getnframes())
    except (wave.Error, EOFError):
        return _read_other(path, content)
    raw = raw[: len(raw) - len(raw) % (width * channels)]
    if width == 3:
        parts = np.frombuffer(raw, np.uint8).reshape(-1, 3).astype(np.int32)
        whole = (parts[:, 0] << 8 | parts[:, 1] << 16 | parts[:, 2] << 24) >> 8
    else:
        whole = np.frombuffer(raw, {1: "u1", 2: "<i2", 4: "<i4"}[width]).astype(np.int64)
        whole = whole - 128 if width == 1 else whole  # bytes are unsigned
    samples = whole / float(1 << (8 * width - 1))
    return rate, samples.reshape(-1, channels).mean(1).astype(np.float32)


def _read_other(path: Path, content: bytes) -> tuple[int, np.ndarray]:
    package = _soundfile(path)
    try:
        samples, rate = package.read(io.BytesIO(content), dtype="float32", always_2d=True)
    except Exception as error:  # libsndfile's own class, and bare ones
        text = getattr(error, "error_string", error)
        raise DataError(f"{path} cannot be read as a sound: {text}") from error
    return int(rate), samples.mean(1)


def _soundfile(path: Path):
    try:
        import soundfile
    except ImportError:
        raise DataError(
            f"{path} is not a plain WAV file: reading it needs soundfile: pip install 'onnxgrad[audio]'"
        ) from None
    return soundfile
