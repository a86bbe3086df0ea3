"""`recap lift`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recap.cli.settings import config_options
from recap.hands.settings import LiftSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from recap.hands.camera import Camera
    from recap.hands.landmarks import Landmarks
    from recap.hands.lift import Lifted

FILE = click.Path(path_type=Path)
HELP = {
    "hands": "Which are lifted.",
    "finger": "That meets the thumb.",
    "hand_size": "Wrist to middle knuckle.  [default: estimated]",
    "bridge": "Fill gaps of at most so long.  [default: none]",
    "gripper": "Open or closed, or as far as the fingers are.",
    "opening": "Thumb to finger, closed and open.  [default: the film's]",
    "tool": "The robot's tool in the hand's.  [default: the same]",
    "min_coverage": "Refuse a film with a smaller share of frames with the hand.",
}
METAVARS = {"hand_size": "M", "bridge": "S", "opening": "M,M", "tool": "X,Y,Z,QW,QX,QY,QZ"}


@click.command()
@click.argument("films", metavar="FILM…", nargs=-1, required=True, type=FILE)
@click.option("--camera", "calibration", required=True, type=FILE, metavar="FILE", help="calibration.yaml.")
@click.option(
    "--view",
    "views",
    multiple=True,
    metavar="NAME",
    help="Camera of each FILM, in order.  [default: as in the file]",
)
@click.option("--task", required=True, help="What is done, in words.")
@click.option("--out", required=True, type=FILE, metavar="DIR", help="Written whole or not at all.")
@config_options(LiftSettings, HELP, METAVARS)
@click.option(
    "--robot", type=FILE, metavar="FILE", help="robot.yaml: say what is out of its reach or too fast."
)
@click.option(
    "--speed",
    default="1",
    show_default=True,
    metavar="N",
    help="How much faster than the robot; auto: from --robot.",
)
@click.option(
    "--landmarks",
    "files",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="landmarks.npz of each FILM, instead of MediaPipe.",
)
@click.option("--depth", type=FILE, metavar="DIR", help="16-bit PNG in mm for each frame of the first FILM.")
@click.option(
    "--model",
    type=click.Choice(["full", "lite"]),
    default="full",
    show_default=True,
    help="MediaPipe's; lite is quicker.",
)
@click.option("--seconds", type=click.FloatRange(0.5), default=20.0, show_default=True, help="Of a webcam.")
@click.option("--preview", is_flag=True, help="Write preview.mp4 too: landmarks, tool and gaps drawn.")
def lift(
    films: tuple[Path, ...],
    calibration: Path,
    views: tuple[str, ...],
    task: str,
    out: Path,
    settings: Mapping[str, Any],
    robot: Path | None,
    speed: str,
    files: tuple[Path, ...],
    depth: Path | None,
    model: Any,
    preview: bool,
    seconds: float,
) -> None:
    """Make a demonstration of a film of a hand.

    With one FILM the distance follows from the size of the hand; several FILMs of one motion by calibrated
    cameras, begun within 2 s, are triangulated. webcam:0 as FILM is filmed to DIR.mp4 first, until Ctrl-C or
    for --seconds. DIR gets poses.npz, video.mp4, task.txt, quality.json and landmarks.npz, and recap pool add
    takes it. Frames without a hand stay gaps: a demonstration is cut there.

    \b
    Example:
      recap lift film.mp4 --camera calibration.yaml --task "put the bottle into the box" --out data/hand/0
    """
    from recap.errors import InputError
    from recap.hands.camera import load_calibration
    from recap.hands.lift import lift as lift_films
    from recap.hands.lift import stretched, write_demonstration

    if out.exists():
        raise InputError(f"{out} is there already: give another --out", code="hands.out")
    films = tuple(_recorded(film, out, seconds) for film in films)
    for film in films:
        if not film.is_file():
            raise InputError(f"{film} does not exist: give a film", code="hands.film")
    found = load_calibration(calibration)
    cameras = _views(found.cameras, films, views, calibration)
    wanted = LiftSettings(**settings)
    landmarks = _landmarks(films, files, 2 if wanted.hands != "one" else 1, model)
    what = str(films[0])
    images = None if depth is None else _depth_images(depth, len(landmarks[0].times))
    lifted = lift_films(landmarks, cameras, wanted, what, images)
    lifted = stretched(lifted, _speed(speed, lifted, robot))
    for line in _lines(lifted, landmarks):
        click.echo(line)
    for line in () if robot is None else _robot_lines(lifted, robot):
        click.echo(line)
    write_demonstration(out, lifted, task, films[0], cameras[0] if preview else None)
    click.echo(f"Written: {out}" + (f"; look at {out / 'preview.mp4'}" if preview else ""))
    click.echo(f"Next: recap pool add POOL {out.parent if out.parent != Path() else out}")


def _recorded(film: Path, out: Path, seconds: float) -> Path:
    """A film of `webcam:N`; any other as it is."""
    from recap.cli.terminal import say
    from recap.hands.film import record_webcam

    name, _, number = str(film).partition(":")
    if name != "webcam" or not number.isdigit() or film.exists():
        return film
    say(f"Filming webcam {number} for {seconds:g} s; Ctrl-C ends it")
    return record_webcam(int(number), out.with_name(f"{out.name}.mp4"), seconds)


def _views(cameras: Any, films: Sequence[Path], views: Sequence[str], file: Path) -> list[Camera]:
    from recap.errors import InputError, one_of

    names = views or tuple(cameras)[: len(films)]
    if len(names) != len(films):
        raise InputError(
            f"{len(films)} films need {len(films)} cameras, {file} has {', '.join(cameras)}: give --view"
        )
    return [cameras[one_of("camera", name, tuple(cameras))] for name in names]


def _landmarks(films: Sequence[Path], files: Sequence[Path], n_hands: int, model: Any) -> list[Landmarks]:
    from recap.cli.terminal import progress_bar
    from recap.errors import InputError
    from recap.hands.film import film_frames
    from recap.hands.landmarks import load_landmarks
    from recap.hands.mediapipe import find_hands
    from recap.video import video_length

    if files:
        if len(files) != len(films):
            raise InputError(f"{len(films)} films need as many --landmarks: give one for each, in order")
        return [load_landmarks(file) for file in files]
    found = []
    for film in films:
        with progress_bar(f"frames of {film.name}") as progress:
            total = video_length(film, 30.0)
            found.append(find_hands(film_frames(film), n_hands, model, lambda n: progress(n, max(n, total))))  # noqa: B023
    return found


def _depth_images(folder: Path, n: int) -> Any:
    import cv2
    import numpy as np

    from recap.errors import InputError

    files = sorted(folder.glob("*.png"))
    if len(files) != n:
        raise InputError(f"{folder} has {len(files)} PNG files, the film {n} frames: give one for each")

    class Images:
        def __len__(self) -> int:
            return n

        def __getitem__(self, number: int) -> Any:
            image = cv2.imread(str(files[number]), cv2.IMREAD_UNCHANGED)
            if image is None or image.dtype != np.uint16 or image.ndim != 2:
                raise InputError(f"{files[number]} is no 16-bit grey PNG: write depth in mm so")
            return image / 1000

    return Images()


def _speed(text: str, lifted: Lifted, robot: Path | None) -> float:
    from recap.errors import InputError
    from recap.hands.robot_fit import relative_speed
    from recap.robot import load_robot

    if text == "auto":
        if robot is None:
            raise InputError("--speed auto needs the robot's limits: give --robot robot.yaml")
        return relative_speed(lifted, load_robot(robot))
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 20:
        raise InputError(f"--speed is '{text}': give 0.1 to 20, or auto")
    return value


def _lines(lifted: Lifted, found: Sequence[Landmarks]) -> list[str]:
    """What a person should know of it."""
    n = len(lifted.times)
    lines = [f"Film: {n} frames at {lifted.fps:g} a second, {n / lifted.fps:.1f} s"]
    seconds = sum(film.seconds for film in found)
    if seconds:
        frames = sum(len(film.times) for film in found)
        lines[0] += f"; found at {1000 * seconds / frames:.0f} ms a frame"
    for side, hand in lifted.hands.items():
        q = hand.quality
        name = "Hand" if side == "hand" else f"Hand, {side}"
        lines.append(
            f"{name}: seen in {q.coverage:.1%} of the frames, {len(q.gaps_s)} gaps, {q.bridged_frames} "
            f"frames bridged; jitter {q.jitter_mm:.1f} mm, {q.jitter_deg:.1f} degrees; reprojection "
            f"{q.error_px:.1f} px; palm {q.palm_mm:.0f} mm, spread {q.palm_spread:.0%}"
        )
        low, high = q.opening_mm
        lines.append(
            f"Fingers: {low:.0f} to {high:.0f} mm apart; {len(q.grasps_s)} grasps, {len(q.releases_s)} "
            "releases"
        )
        if q.swaps:
            lines.append(f"Swaps: left and right were exchanged in {q.swaps} frames, and put right")
    if any(lifted.offsets):
        shifts = ", ".join(f"{1000 * shift:+.0f}" for shift in lifted.offsets[1:])
        lines.append(f"Films: the further ones show it {shifts} ms later than the first, which is put right")
    if lifted.speed != 1:
        lines.append(f"Speed: {lifted.speed:.2f} times the robot's; times are stretched by it")
    return lines


def _robot_lines(lifted: Lifted, robot: Path) -> list[str]:
    from recap.hands.robot_fit import out_of_reach, relative_speed
    from recap.robot import load_robot

    spec = load_robot(robot)
    lines = out_of_reach(lifted, spec)
    factor = relative_speed(lifted, spec) / lifted.speed
    if factor > 1:
        lines.append(f"Too fast: {factor:.2f} times what '{spec.name}' may do; give --speed auto")
    return lines or [f"Robot: all of it is within reach and limits of '{spec.name}'"]
