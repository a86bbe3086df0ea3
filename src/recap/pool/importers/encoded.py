"""Decodes single JPEG or PNG images from a Parquet column or an HDF5 dataset."""

from __future__ import annotations

import io
from bisect import bisect_right
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from recap.errors import DatasetError
from recap.pool.importers.source import MAX_FRAME_BYTES, as_dataset_error
from recap.types import U8

JPEG, PNG = b"\xff\xd8", b"\x89PNG\r\n\x1a\n"
_START_OF_FRAME = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # JPEG markers that contain the size


def decode_image(data: bytes, what: str) -> U8:
    """A JPEG or PNG image as RGB (h, w, 3)."""
    height, width = _size(data, what)
    if height * width * 3 > MAX_FRAME_BYTES:
        raise DatasetError(f"{what} claims {width}x{height} pixels; check the file")
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as picture:
            if picture.mode.startswith("I"):  # 16-bit grey; Pillow would clip it at 255
                grey = np.asarray(picture, np.uint16) >> 8
                return np.repeat(grey.astype(np.uint8)[..., None], 3, axis=2)
            return np.asarray(picture.convert("RGB"), np.uint8)
    except (OSError, SyntaxError, ValueError) as error:  # raised by Pillow for damaged data
        raise DatasetError(f"{what} is a damaged picture; restore the file or leave it out") from error


def _size(data: bytes, what: str) -> tuple[int, int]:
    """Height and width from the header, so that the decoder cannot be made to allocate too much."""
    if data[:8] == PNG and len(data) >= 24:
        return int.from_bytes(data[20:24]), int.from_bytes(data[16:20])
    at = 2
    while data[:2] == JPEG and at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _START_OF_FRAME:
            return int.from_bytes(data[at + 5 : at + 7]), int.from_bytes(data[at + 7 : at + 9])
        if marker == 0xFF:  # padding between segments
            at += 1
            continue
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    raise DatasetError(f"{what} is neither JPEG nor PNG; restore the file or leave it out")


def parquet_frame(file: Path, key: str, first: int, number: int) -> U8:
    """The image at row `first + number` of a column `{bytes, path}`, the format of the datasets library."""
    what = f"{key}, frame {number}"
    with as_dataset_error(file, what):
        row, changed = first + number, file.stat().st_mtime_ns
        starts = _starts(file, changed)
        group = bisect_right(starts, row) - 1
        record = _group(file, changed, key, group)[row - starts[group]].as_py() or {}
        return decode_image(record.get("bytes") or b"", what)


@lru_cache(maxsize=64)
def _starts(file: Path, mtime_ns: int) -> list[int]:
    metadata = pq.read_metadata(file)
    sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    return [0, *np.cumsum(sizes).tolist()]


@lru_cache(maxsize=4)  # reading an episode in order loads each group once
def _group(file: Path, mtime_ns: int, key: str, number: int) -> Any:
    with pq.ParquetFile(file) as opened:
        return opened.read_row_group(number, columns=[key])[key]
