"""A small PNG, written by hand: notebooks show one without matplotlib."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]


def png(pixels: Pixels) -> bytes:
    """An image [height, width, 3] of 0 to 255 as a file.

    >>> png(np.zeros((2, 3, 3), np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    height, width, _ = pixels.shape
    cells = np.zeros((height, 1 + 3 * width), np.uint8)  # each line begins with its filter, none
    cells[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(cells.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + check


def image_tag(pixels: Pixels, width: int, words: str) -> str:
    """HTML of an image that many CSS pixels wide; words for who does not see it."""
    text = base64.b64encode(png(pixels)).decode()
    return (
        f'<img src="data:image/png;base64,{text}" alt="{words}" width="{width}" '
        'style="image-rendering:pixelated;border:1px solid #4A4F5A;background:white">'
    )
