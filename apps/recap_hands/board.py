"""A calibration board of squares and AprilTags, to print and to detect in images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from recap.errors import InputError
from recap.types import F64, U8

POINTS_A_METRE = 72 / 0.0254  # of a PDF
PAGE = (297 / 1000, 210 / 1000)  # A4 landscape, m
LEAST_CORNERS = 8  # of a usable view


@dataclass(frozen=True)
class Board:
    """A ChArUco board of tags 36h11.

    Its frame has its origin at the lower left corner of the squares, x right, y up the page, z out of it.

    Args:
        squares: number across and down.
        square: m, side of a square.
        tag: m, side of a tag's black border.
    """

    squares: tuple[int, int] = (7, 5)
    square: float = 0.035
    tag: float = 0.026

    def __post_init__(self) -> None:
        if min(self.squares) < 3 or not 0.5 * self.square < self.tag < self.square:
            raise InputError("a board has 3 squares or more each way, tags of half a square to less than one")

    @property
    def opencv(self) -> Any:
        """The same board in OpenCV."""
        import cv2

        tags = cv2.aruco.getPredefinedDictionary(cv2.aruco.DICT_APRILTAG_36h11)
        return cv2.aruco.CharucoBoard(self.squares, self.square, self.tag, tags)

    @property
    def height(self) -> float:
        return self.squares[1] * self.square

    def corners(self) -> F64:
        """(n, 3): inner corners of the squares in the board's frame, in OpenCV's order."""
        points = np.array(self.opencv.getChessboardCorners(), np.float64)  # OpenCV's y goes down the page
        return np.column_stack([points[:, 0], self.height - points[:, 1], -points[:, 2]])

    def find(self, image: U8) -> tuple[F64, F64]:
        """Corners in an RGB image: (k, 3) in the board's frame and (k, 2) pixels; k is 0 without a board."""
        import cv2

        parameters = cv2.aruco.DetectorParameters()
        parameters.cornerRefinementMethod = cv2.aruco.CORNER_REFINE_SUBPIX
        detector = cv2.aruco.CharucoDetector(self.opencv, detectorParams=parameters)
        grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        pixels, numbers, _, _ = detector.detectBoard(grey)
        if numbers is None or len(numbers) < LEAST_CORNERS:
            return np.empty((0, 3)), np.empty((0, 2))
        return self.corners()[numbers.ravel()], pixels.reshape(-1, 2).astype(np.float64)

    def black(self) -> list[tuple[float, float, float, float]]:
        """The black rectangles x, y, width, height in the board's frame."""
        import cv2

        found = [np.array(quad, np.float64) for quad in self.opencv.getObjPoints()]
        tagged = {tuple((quad.mean(axis=0)[:2] // self.square).astype(int)) for quad in found}
        side = self.square
        out = [
            (x * side, self.height - (y + 1) * side, side, side)
            for x in range(self.squares[0])
            for y in range(self.squares[1])
            if (x, y) not in tagged
        ]
        tags = self.opencv.getDictionary()
        cells = tags.markerSize + 2
        cell = self.tag / cells
        for number, quad in zip(self.opencv.getIds().ravel().tolist(), found, strict=True):
            picture = cv2.aruco.generateImageMarker(tags, number, cells, None, 1)
            left, top = quad[:, 0].min(), quad[:, 1].min()
            for row, column in np.argwhere(picture == 0).tolist():
                out.append((left + column * cell, self.height - top - (row + 1) * cell, cell, cell))
        return out

    def pdf(self) -> bytes:
        """One A4 page in true size; it must be printed at 100 %."""
        width = self.squares[0] * self.square
        if width > PAGE[0] - 0.01 or self.height > PAGE[1] - 0.02:
            raise InputError(f"{1000 * width:.0f} x {1000 * self.height:.0f} mm do not fit on A4: give less")
        left, low = (PAGE[0] - width) / 2, (PAGE[1] - self.height) / 2
        k = POINTS_A_METRE
        grown = 0.02  # points; avoids hairlines between neighbours
        drawing = ["0 g"]
        for x, y, wide, high in self.black():
            drawing.append(
                f"{(left + x) * k:.3f} {(low + y) * k:.3f} {wide * k + grown:.3f} {high * k + grown:.3f} re"
            )
        words = (
            f"{self.squares[0]} x {self.squares[1]} squares of {1000 * self.square:g} mm, tags 36h11 of "
            f"{1000 * self.tag:g} mm; print at 100 %"
        )
        drawing += ["f", f"BT /F1 8 Tf {left * k:.1f} {(low - 0.006) * k:.1f} Td ({words}) Tj ET"]
        return _one_page("\n".join(drawing).encode(), PAGE[0] * k, PAGE[1] * k)

    def image(self, px: int) -> U8:
        """Grey (h, w): the board with `px` pixels per square and a white border of half a square."""
        scale, border = px / self.square, px // 2
        wide, high = (n * px + 2 * border for n in self.squares)
        out = np.full((high, wide), 255, np.uint8)
        for x, y, w, h in self.black():
            top = self.height - y - h
            a, b = round(top * scale) + border, round((top + h) * scale) + border
            c, d = round(x * scale) + border, round((x + w) * scale) + border
            out[a:b, c:d] = 0
        return out


def _one_page(drawing: bytes, width: float, height: float) -> bytes:
    parts = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %.2f %.2f] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>" % (width, height),
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawing), drawing),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out, places = b"%PDF-1.4\n", []
    for number, part in enumerate(parts, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, part)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    n = len(parts) + 1
    ending = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (n, len(out))
    return out + b"xref\n0 %d\n0000000000 65535 f \n%s" % (n, table) + ending
