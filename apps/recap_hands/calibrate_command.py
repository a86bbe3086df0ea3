"""`recap calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recap.types import U8

FILE = click.Path(path_type=Path)
FILMS = (".mp4", ".mov", ".mkv", ".avi", ".webm")
LOOK_EVERY_S = 0.5
MOST_VIEWS = 40


@click.command()
@click.argument("images", metavar="[IMAGE]…", nargs=-1, type=FILE)
@click.option("--print", "pdf", type=FILE, metavar="FILE", help="Only write the board, a PDF to print.")
@click.option("--squares", default="7x5", show_default=True, metavar="WxH", help="Squares of the board.")
@click.option(
    "--square", type=float, default=35.0, show_default=True, metavar="MM", help="Measured side of a square."
)
@click.option("--name", default="front", show_default=True, help="Name of the camera.")
@click.option(
    "--table",
    type=FILE,
    metavar="IMAGE",
    help="Image that shows the board at the world frame.  [default: the last IMAGE]",
)
@click.option(
    "--robot-poses",
    type=FILE,
    metavar="FILE",
    help="CSV with x,y,z,qw,qx,qy,qz of the tool at each IMAGE: the world is the robot's frame.",
)
@click.option(
    "--carries",
    type=click.Choice(["board", "camera"]),
    default="board",
    show_default=True,
    help="What is attached to the robot's tool.",
)
@click.option("--out", type=FILE, default=Path("calibration.yaml"), show_default=True)
def calibrate(
    images: tuple[Path, ...],
    pdf: Path | None,
    squares: str,
    square: float,
    name: str,
    table: Path | None,
    robot_poses: Path | None,
    carries: str,
    out: Path,
) -> None:
    """Calibrate a camera from images, or a film, of a printed board.

    Print the board, glue it to something flat, and take 10 to 20 sharp images of it: close up, in all corners
    of the image, tilted to all sides, and last with the board flat on the table. The board then defines the
    world frame: origin at its lower left corner, x to the right, y up the page, z out of it. The camera is
    added to those already in the file. A picture next to the file compares the detected corners with the
    calibration.

    \b
    Example:
      recap calibrate --print board.pdf
      recap calibrate views/*.jpg --name front --out calibration.yaml
    """
    from recap import config
    from recap.errors import InputError
    from recap.pictures import write_png
    from recap_hands.calibrate import board_in_camera, drawn, find_views, hand_eye, standing_at
    from recap_hands.calibrate import calibrate as calibrate_views
    from recap_hands.camera import Calibration, load_calibration

    board = _board(squares, square)
    if pdf is not None:
        pdf.parent.mkdir(parents=True, exist_ok=True)
        pdf.write_bytes(board.pdf())
        click.echo(f"Written: {pdf}; print it at 100 %, and measure a square: it should be {square:g} mm")
        click.echo("Next: recap calibrate IMAGE…")
        return
    if not images:
        raise InputError("no images given: recap calibrate IMAGE…, or --print board.pdf to print a board")
    loaded = _images(images)
    size = loaded[0][1].shape[:2]
    for label, image in loaded:
        if image.shape[:2] != size:
            raise InputError(
                f"{label} and {loaded[0][0]} differ in size: take all images with one setting",
                code="calibrate.views",
            )
    found = calibrate_views(find_views(loaded, board), (size[0], size[1]))
    frame = "board"
    shown = len(found.views) - 1
    if robot_poses is not None:
        poses, names = _poses(robot_poses, len(loaded)), [label for label, _ in loaded]
        matched = poses[[names.index(view.name) for view in found.views]]
        stands, far, turned = hand_eye(matched, found.boards, carries)
        frame = "robot" if carries == "board" else "tool"
        click.echo(f"Robot: its moves agree to {far:.2f} mm and {turned:.2f} degrees, {len(matched)} poses")
        camera = standing_at(found.camera, stands)
    else:
        import numpy as np

        view = found.views[-1]
        if table is not None:
            flat = find_views(_images([table]), board)
            if not flat:
                raise InputError(f"{table} shows no board: give another --table", code="calibrate.views")
            view = flat[0]
        elif view.name != loaded[-1][0]:
            raise InputError(
                f"{loaded[-1][0]}, the last image, shows no board on the table: give --table",
                code="calibrate.views",
            )
        camera = standing_at(found.camera, np.linalg.inv(board_in_camera(found.camera, view)))
    known = load_calibration(out) if out.exists() else Calibration({}, frame)
    if known.cameras and known.frame != frame:
        raise InputError(f"{out} uses the frame '{known.frame}', this one '{frame}': give another --out")
    config.save_file(out, Calibration({**known.cameras, name: camera}, frame))
    picture = out.with_name(f"{out.stem}-{name}.png")
    image = dict(loaded)[found.views[shown].name]
    write_png(picture, drawn(image, found.camera, found.views[shown], found.boards[shown]))
    fx, fy, cx, cy = camera.intrinsics
    click.echo(
        f"Camera: {name}, {size[1]}x{size[0]}, fx {fx:.1f}, fy {fy:.1f}, centre {cx:.1f}, {cy:.1f}; "
        f"reprojection {camera.error_px:.2f} px, worst image {found.errors_px.max():.2f}; "
        f"{len(found.views)} of {len(loaded)} images"
    )
    x, y, z = camera.at[:3]
    click.echo(f"It stands at {x:.3f}, {y:.3f}, {z:.3f} m in the {frame}'s frame")
    click.echo(f"Written: {out}; look at {picture}")
    click.echo(f'Next: recap lift FILM --camera {out} --task "…" --out DIR')


def _board(squares: str, square_mm: float) -> Any:
    from recap.errors import InputError
    from recap_hands.board import Board

    across, sign, down = squares.partition("x")
    if not (sign and across.isdigit() and down.isdigit()):
        raise InputError(f"--squares is '{squares}': give two numbers, such as 7x5")
    if not 5 <= square_mm <= 500:
        raise InputError(f"--square is {square_mm:g} mm: give the measured side of a square in mm")
    return Board((int(across), int(down)), square_mm / 1000, square_mm / 1000 * 26 / 35)


def _images(paths: Sequence[Path]) -> list[tuple[str, U8]]:
    import cv2
    import numpy as np

    from recap.errors import InputError
    from recap_hands.film import film_frames

    out: list[tuple[str, U8]] = []
    for path in paths:
        if path.suffix.lower() in FILMS:
            looked = 0
            for now, frame in film_frames(path, 100_000):
                if now >= looked * LOOK_EVERY_S:
                    out.append((f"{path.name} at {now:.2f} s", frame))
                    looked += 1
            continue
        image = cv2.imread(str(path)) if path.is_file() else None
        if image is None:
            raise InputError(f"{path} cannot be read as an image: give PNG or JPEG files, or a film")
        out.append((str(path), np.ascontiguousarray(image[..., ::-1])))
    if len(out) > MOST_VIEWS:  # evenly, with the last
        out = [out[i] for i in np.unique(np.linspace(0, len(out) - 1, MOST_VIEWS).round().astype(int))]
    return out


def _poses(path: Path, n: int) -> Any:
    import csv

    import numpy as np

    from recap.errors import InputError
    from recap.geometry3 import quaternion_to_matrix

    names = ("x", "y", "z", "qw", "qx", "qy", "qz")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [[float(row[name]) for name in names] for row in csv.DictReader(file)]
        values = np.array(rows).reshape(len(rows), 7)
        out = np.tile(np.eye(4), (len(values), 1, 1))
        out[:, :3, :3], out[:, :3, 3] = quaternion_to_matrix(values[:, 3:]), values[:, :3]
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path} cannot be read ({error}): give a CSV with {','.join(names)}") from None
    if len(out) != n:
        raise InputError(f"{path} has {len(out)} poses for {n} images: give one for each")
    return out
