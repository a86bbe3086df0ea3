"""Imports demonstrations from LeRobot, ACT, robomimic, RoboTwin 2.0, tracked poses and formats of plugins."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from importlib import import_module
from itertools import islice
from pathlib import Path

from recap.errors import DatasetError, cause, did_you_mean, one_of
from recap.pool.importers.source import Reader, Source, Transform, as_dataset_error
from recap.suites import plugins

__all__ = ["Source", "Transform", "detect_format", "local_path", "open_source"]
# Imported on demand, so that one format does not need the libraries of another.
READERS = {
    "lerobot": "recap.pool.lerobot_read:LeRobotReader",
    "act": "recap.pool.importers.act:ActReader",
    "robomimic": "recap.pool.importers.robomimic:RobomimicReader",
    "robotwin": "recap.pool.importers.robotwin:RobotwinReader",
    "tracked": "recap.pool.importers.tracked:TrackedReader",
}
GROUP = "recap.formats"  # entry points: readers of other packages
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?:@[\w./-]+)?")  # ORG/NAME[@REVISION]
_EXPECTED = (
    "expected a LeRobot folder (meta/info.json), ACT's episodes (episode_0.hdf5), a robomimic file "
    "(data/demo_0/actions), RoboTwin episodes (data/episode0.hdf5), tracked poses (poses.csv), or "
)


def open_source(
    path: Path,
    *,
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    fps: float | None = None,
    transform: Transform | None = None,
    skip_damaged: bool = False,
    column: str | None = None,
) -> Source:
    """Open demonstrations of another format as episodes.

    Args:
        path: a file or folder; if it does not exist, the dataset `ORG/NAME[@REVISION]` on the hub.
        format: one of READERS or of a plugin; detected by default.
        mapping: our field -> key of the source, see `recap.pool.importers.mapping`.
        fps: the recorded rate, for sources that do not state it.
        transform: applied to every episode as it is read.
        skip_damaged: yield only readable episodes; `Source.damage` lists the others.
        column: a feature to store as an attribute, for pairing; episode table columns are attributes already.
    """
    path = local_path(path)
    with as_dataset_error(path):
        known = (*READERS, *plugins(GROUP))
        name = detect_format(path) if format is None else one_of("format", format, known)
        return Source(path, name, _reader(name)(path, fps), mapping or {}, transform, skip_damaged, column)


def _reader(name: str) -> Callable[[Path, float | None], Reader]:
    if name not in READERS:
        return plugins(GROUP)[name].load()  # type: ignore[no-any-return]
    module, _, kind = READERS[name].partition(":")
    return getattr(import_module(module), kind)  # type: ignore[no-any-return]


def detect_format(path: Path) -> str:
    """The format of a file or folder."""
    path = local_path(path)
    with as_dataset_error(path):
        return _detect_folder(path) if path.is_dir() else _detect_file(path)


def local_path(path: Path) -> Path:
    """The path if it exists, else the hub dataset of that name, downloaded."""
    with as_dataset_error(path):
        if path.exists():
            return path
        beside = [child.name for child in path.parent.glob("[!.]*")]
    hint = did_you_mean(path.name, beside) if beside else "check the path"
    missing = f"{path} does not exist: {hint if len(hint) < 300 else 'check the path'}"
    if not _HUB_NAME.fullmatch(str(path)):
        raise DatasetError(missing)
    return _fetch(str(path), missing)


def _detect_folder(path: Path) -> str:
    from recap.pool.importers.tracked import episode_folders

    if (path / "meta/info.json").is_file():
        return "lerobot"
    if any(file.is_file() for folder in (path, path / "data") for file in folder.glob("episode*.h*5")):
        from recap.pool.importers import act, hdf5, robotwin

        episodes = robotwin.episode_files(path)
        if not episodes:
            return "robotwin"  # its reader reports what is missing
        with hdf5.opened(hdf5.first_readable(episodes)) as opened:
            return "act" if act.recognises(opened) else "robotwin"
    if episode_folders(path):
        return "tracked"
    installed = _detect_installed(path)
    if installed is not None:
        return installed
    files = sorted(child for child in islice(path.rglob("*"), 1000) if child.is_file())
    inside = [file for file in files if file.suffix in (".hdf5", ".h5")]
    likely = [file.parents[1] if file.parent.name == "data" else file for file in inside]  # RoboTwin's folder
    likely += [file.parents[1] for file in files if file.parts[-2:] == ("meta", "info.json")]
    if (path / "pool.json").exists():
        raise DatasetError(
            f"{path} is a pool, not a dataset: recap pool ls {path} lists it, recap pool export makes one"
        )
    if likely:
        raise DatasetError(f"{path} is no demonstration source itself: did you mean '{likely[0]}'?")
    kinds = Counter(file.suffix or "without suffix" for file in files)
    found = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common(5)) or "nothing"
    raise DatasetError(f"{path} is of no known format: found files: {found}; {_expected()}")


def _detect_installed(path: Path) -> str | None:
    """The format of a plugin, or None."""
    return next((name for name, entry in plugins(GROUP).items() if entry.load().recognises(path)), None)


def _expected() -> str:
    return f"{_EXPECTED}{', '.join(plugins(GROUP))}"


def _detect_file(path: Path) -> str:
    installed = _detect_installed(path)
    if installed is not None:
        return installed
    if path.name in ("poses.csv", "poses.npz"):
        raise DatasetError(f"{path} is part of a folder of tracked poses: did you mean '{path.parent}'?")
    from recap.pool.importers import act, hdf5, robomimic, robotwin

    if path.suffix not in hdf5.SUFFIXES:
        raise DatasetError(f"{path} is of no known format: a {path.suffix or 'plain'} file; {_expected()}")
    with hdf5.opened(path) as file:
        if robomimic.recognises(file):
            return "robomimic"
        if robotwin.recognises(file):
            return "robotwin"
        if act.recognises(file):
            return "act"
        found = ", ".join(sorted(repr(name) for name in list(file)[:8])) or "nothing"
    raise DatasetError(f"{path} is of no known format: found the groups {found}; {_expected()}")


def _fetch(name: str, missing: str) -> Path:
    """Download `ORG/NAME[@REVISION]` to the hub's cache; `missing` is the local part of the error."""
    from huggingface_hub import errors, snapshot_download

    repo, _, revision = name.partition("@")
    try:
        return Path(snapshot_download(repo, repo_type="dataset", revision=revision or None))
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled):
        why = "the hub cannot be reached: connect, or copy the dataset here"
    except errors.GatedRepoError:
        why = "the hub wants you to accept its terms: do so on its page, then hf auth login"
    except errors.RevisionNotFoundError:
        why = f"the hub has no revision '{revision}' of {repo}"
    except errors.RepositoryNotFoundError:
        why = "the hub has no such dataset, or it is private: hf auth login"
    except (OSError, ValueError) as error:
        why = f"fetching it from the hub failed: {cause(error)}"
    raise DatasetError(f"{missing}; and {why}", code="dataset.hub")
