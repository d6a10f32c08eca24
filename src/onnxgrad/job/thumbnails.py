"""Small pictures of a model's inputs, as PNG inside an address: no package, no file beside the report."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

LARGEST = 96  # pixels along a side


def thumbnail(row: np.ndarray) -> str:
    """The address of a picture of one row [C, H, W], [H, W, C] or [H, W]; "" for what is not a picture.

    Numbers are stretched from the least to the largest, whatever a model's preprocessing made of them.
    """
    pixels = _pixels(row)
    if pixels is None or not np.isfinite(pixels).any():
        return ""
    step = max(1, -(-max(pixels.shape[:2]) // LARGEST))
    pixels = np.nan_to_num(pixels[::step, ::step].astype(np.float64), posinf=0, neginf=0)
    low, high = pixels.min(), pixels.max()
    scaled = ((pixels - low) / ((high - low) or 1) * 255).round().astype(np.uint8)
    return "data:image/png;base64," + base64.b64encode(png(scaled)).decode()


def _pixels(row: np.ndarray) -> np.ndarray | None:
    """[H, W] or [H, W, 3]."""
    if row.dtype.kind not in "fiu" or row.ndim not in (2, 3) or min(row.shape) == 0:
        return None
    if row.ndim == 2:
        return row if min(row.shape) >= 8 else None
    if row.shape[0] in (1, 3, 4) and min(row.shape[1:]) >= 4:
        row = row.transpose(1, 2, 0)
    elif row.shape[2] not in (1, 3, 4) or min(row.shape[:2]) < 4:
        return None
    return row[..., 0] if row.shape[2] == 1 else row[..., :3]


def png(pixels: np.ndarray) -> bytes:
    """A PNG file of uint8 pixels, [H, W] grey or [H, W, 3] coloured."""
    high, wide = pixels.shape[:2]
    colour = 2 if pixels.ndim == 3 else 0
    rows = pixels.reshape(high, -1)
    no_filter = np.zeros((high, 1), np.uint8)
    lines = np.concatenate([no_filter, rows], 1)
    head = struct.pack(">IIBBBBB", wide, high, 8, colour, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
