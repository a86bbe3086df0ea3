"""`recap lift`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recap.cli.settings import config_options
from recap_hands.settings import LiftSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from recap.robot import RobotSpec
    from recap.types import Episode
    from recap_hands.camera import Camera
    from recap_hands.landmarks import Landmarks
    from recap_hands.lift import Lifted

FILE = click.Path(path_type=Path)
HELP = {
    "hands": "Hands to track.",
    "finger": "Finger that grasps with the thumb.",
    "hand_size": "Wrist to middle knuckle.  [default: estimated]",
    "bridge": "Fill gaps up to this length.  [default: none]",
    "gripper": "Binary (open, closed) or the finger opening.",
    "opening": "Distance from thumb to finger, closed and open.  [default: the film's]",
    "tool": "Pose of the robot's tool in the hand frame.  [default: the same]",
    "min_coverage": "Smallest accepted share of frames with a hand.",
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
@click.option("--task", required=True, help="Instruction, in words.")
@click.option("--out", required=True, type=FILE, metavar="DIR", help="Output folder, written atomically.")
@config_options(LiftSettings, HELP, METAVARS)
@click.option("--robot", type=FILE, metavar="FILE", help="robot.yaml: report poses out of reach or too fast.")
@click.option(
    "--speed",
    default="1",
    show_default=True,
    metavar="N",
    help="How much faster the hand is than the robot; auto: from --paired, else from the limits in --robot.",
)
@click.option(
    "--paired", metavar="POOL|DATASET", help="Demonstrations of the same task by the robot, for --speed auto."
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
    help="MediaPipe model; lite is faster.",
)
@click.option(
    "--seconds", type=click.FloatRange(0.5), default=20.0, show_default=True, help="Of a webcam, s."
)
@click.option(
    "--preview",
    is_flag=True,
    help="Also write preview.mp4 with landmarks, tool and gaps. A webcam is shown live.",
)
def lift(
    films: tuple[Path, ...],
    calibration: Path,
    views: tuple[str, ...],
    task: str,
    out: Path,
    settings: Mapping[str, Any],
    robot: Path | None,
    speed: str,
    paired: str | None,
    files: tuple[Path, ...],
    depth: Path | None,
    model: Any,
    preview: bool,
    seconds: float,
) -> None:
    """Turn a film of a hand into a demonstration.

    With one FILM, depth is estimated from the size of the hand. Several FILMs of the same motion by
    calibrated cameras, started within 2 s of each other, are triangulated. With webcam:0 as FILM, a film is
    first recorded to DIR.mp4, until Ctrl-C or for --seconds. DIR receives poses.npz, video.mp4, task.txt,
    quality.json and landmarks.npz, and recap pool add accepts it. A demonstration is cut at frames without a
    hand. If several hands or cameras are requested, each must be seen.

    \b
    Example:
      recap lift film.mp4 --camera calibration.yaml --task "put the bottle into the box" --out data/hand/0
    """
    from recap.errors import InputError
    from recap.robot import load_robot
    from recap_hands.camera import load_calibration
    from recap_hands.film import film_frames
    from recap_hands.lift import lift as lift_films
    from recap_hands.lift import stretched, write_demonstration

    if out.exists():
        raise InputError(f"{out} is there already: give another --out", code="hands.out")
    cameras = _views(load_calibration(calibration).cameras, films, views, calibration)
    wanted = LiftSettings(**settings)
    n_hands = 2 if wanted.hands != "one" else 1
    spec = None if robot is None else load_robot(robot)
    given = _speed(speed, spec, paired)
    shown = [] if paired is None or spec is None else _paired(paired, task, spec)
    if sum(_is_webcam(film) for film in films) > (0 if files else 1):
        raise InputError("only one webcam at a time, and without --landmarks: give films", code="hands.film")
    films = tuple(_recorded(film, out, seconds, n_hands if preview else 0) for film in films)
    for film, camera in zip(films, cameras, strict=True):  # before hands are looked for, which takes longer
        _, image = next(iter(film_frames(film)))
        camera.for_size(image.shape[0], image.shape[1], str(film))
    landmarks = _landmarks(films, files, n_hands, model)
    images = None if depth is None else _depth_images(depth, len(landmarks[0].times))
    lifted = lift_films(landmarks, cameras, wanted, [str(film) for film in films], images)
    why = ""
    if given is None:
        given, why = _relative(lifted, spec, shown)
    lifted = stretched(lifted, given)
    for line in _lines(lifted, landmarks, why):
        click.echo(line)
    for line in () if spec is None else _robot_lines(lifted, spec):
        click.echo(line)
    write_demonstration(out, lifted, task, films[0], cameras[0] if preview else None)
    click.echo(f"Written: {out}" + (f"; look at {out / 'preview.mp4'}" if preview else ""))
    click.echo(f"Next: recap pool add POOL {out.parent if out.parent != Path() else out}")


def _is_webcam(film: Path) -> bool:
    name, _, number = str(film).partition(":")
    return name == "webcam" and number.isdigit() and not film.exists()


def _recorded(film: Path, out: Path, seconds: float, n_hands: int) -> Path:
    """The film of `webcam:N`, shown live if hands are drawn; other films are returned unchanged."""
    from recap.cli.terminal import say
    from recap_hands.film import record_webcam
    from recap_hands.live import live_view

    if not _is_webcam(film):
        return film
    number = int(str(film).partition(":")[2])
    with live_view(n_hands) if n_hands else nullcontext(lambda image: True) as show:
        say(f"Filming webcam {number} for {seconds:g} s; Ctrl-C{' or Esc' if n_hands else ''} ends it")
        return record_webcam(number, out.with_name(f"{out.name}.mp4"), seconds, show)


def _views(cameras: Any, films: Sequence[Path], views: Sequence[str], file: Path) -> list[Camera]:
    from recap.errors import InputError, one_of

    names = views or tuple(cameras)[: len(films)]
    if len(names) != len(films):
        raise InputError(
            f"{len(films)} films need {len(films)} cameras, but {file} has {', '.join(cameras)}: give --view"
        )
    if len(set(names)) != len(names):
        raise InputError(f"two films are of the camera '{names[0]}': give each film its own --view")
    return [cameras[one_of("camera", name, tuple(cameras))] for name in names]


def _landmarks(films: Sequence[Path], files: Sequence[Path], n_hands: int, model: Any) -> list[Landmarks]:
    from recap.cli.terminal import progress_bar
    from recap.errors import InputError
    from recap.video import video_length
    from recap_hands.film import film_frames, refuse_other_film
    from recap_hands.landmarks import load_landmarks
    from recap_hands.mediapipe import find_hands

    if files:
        if len(files) != len(films):
            raise InputError(f"{len(films)} films need as many --landmarks: give one for each, in order")
        found = [load_landmarks(file) for file in files]
        for film, file, marks in zip(films, files, found, strict=True):
            refuse_other_film(film, marks, file)
        return found
    found = []
    for film in films:
        with progress_bar(f"frames of {film.name}") as progress:
            total = video_length(film, 30.0)
            done = lambda n: progress(n, max(n, total))  # noqa: B023, E731
            found.append(find_hands(film_frames(film), n_hands, model, done, str(film)))
    return found


def _depth_images(folder: Path, n: int) -> Any:
    import cv2
    import numpy as np

    from recap.errors import InputError

    files = sorted(folder.glob("*.png"))
    if len(files) != n:
        raise InputError(f"{folder} has {len(files)} PNG files for {n} frames of the film: give one for each")

    class Images:
        def __len__(self) -> int:
            return n

        def __getitem__(self, number: int) -> Any:
            image = cv2.imread(str(files[number]), cv2.IMREAD_UNCHANGED)
            if image is None or image.dtype != np.uint16 or image.ndim != 2:
                raise InputError(f"{files[number]} is not a 16-bit grey PNG: store depth in mm that way")
            return image / 1000

    return Images()


def _speed(text: str, robot: RobotSpec | None, paired: str | None) -> float | None:
    """The speed; None if it has to be estimated."""
    from recap.errors import InputError

    if text == "auto":
        if robot is None:
            raise InputError("--speed auto needs the robot: give --robot robot.yaml")
        return None
    if paired is not None:
        raise InputError("--paired needs --speed auto: give both")
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 20:
        raise InputError(f"--speed is '{text}': give 0.1 to 20, or auto")
    return value


def _paired(place: str, task: str, robot: RobotSpec) -> list[Episode]:
    """The robot's own demonstrations of the task, in tool space."""
    from recap.errors import InputError, did_you_mean
    from recap.kinematics import tool_space
    from recap.pool.opening import open_demonstrations

    view = open_demonstrations(place, transform=tool_space(robot, known=True))
    shown = [view.episode(name) for name in view.episode_ids]
    shown = [episode for episode in shown if episode.embodiment != "hand"]
    found = [episode for episode in shown if episode.task == task]
    if not found:
        hint = did_you_mean(task, {episode.task for episode in shown})
        raise InputError(f"no demonstration of '{robot.name}' in {place} is of the task '{task}': {hint}")
    return found


def _relative(lifted: Lifted, robot: RobotSpec | None, paired: Sequence[Episode]) -> tuple[float, str]:
    from recap.errors import InputError
    from recap_hands.robot_fit import relative_speed

    assert robot is not None
    found = relative_speed(lifted, robot, paired)
    if found is None:
        raise InputError(
            f"the speed of '{robot.name}' is unknown: give --paired, max_step in robot.yaml, or --speed N"
        )
    return found


def _lines(lifted: Lifted, found: Sequence[Landmarks], why: str) -> list[str]:
    """The result in words."""
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
    if why or lifted.speed != 1:
        by = f" by {why}" if why else ""
        lines.append(f"Speed: {lifted.speed:.2f} times the robot's{by}; times are stretched by it")
    return lines


def _robot_lines(lifted: Lifted, robot: RobotSpec) -> list[str]:
    from recap_hands.robot_fit import out_of_reach, relative_speed

    lines = out_of_reach(lifted, robot)
    factor, why = relative_speed(lifted, robot) or (1.0, "")
    if factor > lifted.speed * 1.005:
        lines.append(f"Too fast: {factor / lifted.speed:.2f} times {why}; give --speed auto")
    return lines or [f"Robot: all of it is within reach and limits of '{robot.name}'"]
