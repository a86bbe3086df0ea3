"""The files of one evaluation: config.json, episodes.jsonl while it runs, eval_info.json at the end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from recap.errors import InputError, RunDirectoryError
from recap.evaluation.agents import Trial
from recap.evaluation.spec import EvalSpec
from recap.run_directory import CONFIG, hold_run_directory, read_json, write_whole
from recap.types import EpisodeResult

EPISODES, INFO = "episodes.jsonl", "eval_info.json"
Key: TypeAlias = tuple[str, int]  # task, seed


def result_to_json(result: EpisodeResult) -> dict[str, Any]:
    """One entry of `eval_info.json`."""
    return {key: value for key, value in asdict(result).items() if value or key not in ("held", "error")}


def result_from_json(entry: object) -> EpisodeResult:
    """The inverse of `result_to_json`; anything else raises ValueError."""
    try:
        return msgspec.convert(entry, EpisodeResult)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


@dataclass
class RunDirectory:
    """A run directory that this process has locked."""

    path: Path
    spec: EvalSpec
    results: dict[Key, EpisodeResult] = field(default_factory=dict)

    def missing(self) -> list[Trial]:
        """Trials without a result."""
        return [trial for trial in self.spec.trials() if (trial.task, trial.seed) not in self.results]

    def append(self, result: EpisodeResult) -> None:
        """Write a result to the disk before returning; a second one of the same trial is ignored."""
        key = (result.task, result.seed)
        if key in self.results:
            return
        self.results[key] = result
        line = json.dumps(result_to_json(result)) + "\n"
        # Unbuffered: each line is one write, so that only the last line can be incomplete.
        with (self.path / EPISODES).open("ab", buffering=0) as file:
            file.write(line.encode())

    def sorted_results(self) -> list[EpisodeResult]:
        """Results by task, then seed."""
        order = {key: n for n, key in enumerate(self.spec.task_keys)}
        return sorted(self.results.values(), key=lambda r: (order[r.task], r.seed))

    def write_info(self, summary: Mapping[str, Any], provenance: Mapping[str, Any] | None = None) -> Path:
        """Write `eval_info.json` atomically.

        Args:
            provenance: facts about the origin of the results that the config does not contain.
        """
        episodes = [result_to_json(r) for r in self.sorted_results()]
        info = {"config": self.spec.to_json(), "episodes": episodes, "summary": summary}
        if provenance:
            info["provenance"] = dict(provenance)
        write_whole(self.path / INFO, json.dumps(info, indent=1) + "\n")
        return self.path / INFO


@contextmanager
def open_run(path: Path, spec: EvalSpec, *, retry_errors: bool = False) -> Iterator[RunDirectory]:
    """Lock the directory and load its results; one in use, or of another spec, is an error."""
    with hold_run_directory(path, spec.to_json()):
        run = RunDirectory(path, spec)
        _load_results(run, retry_errors)
        if run.missing():
            (path / INFO).unlink(missing_ok=True)  # it only belongs to a complete run
        yield run


def _load_results(run: RunDirectory, retry_errors: bool) -> None:
    """Read the results so far; an incomplete last line is dropped, other damage is an error."""
    file = run.path / EPISODES
    if not file.exists():
        return
    text = file.read_bytes()
    lines = text.splitlines(keepends=True)
    kept: list[bytes] = []
    known = {(trial.task, trial.seed) for trial in run.spec.trials()}
    for number, line in enumerate(lines, 1):
        try:
            if not line.endswith(b"\n"):
                raise ValueError("no end of line")
            result = result_from_json(json.loads(line))
            key = (result.task, result.seed)
            if key not in known:
                raise ValueError(f"episode {key} is not in the config")
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                break
            raise RunDirectoryError(
                f"{file} is damaged at line {number} ({error}): remove that line to rerun its episode"
            ) from error
        if key not in run.results and not (retry_errors and result.outcome == "error"):
            run.results[key] = result
            kept.append(line)
    whole = b"".join(kept)
    if whole != text:
        write_whole(file, whole.decode())


def read_provenance(path: Path) -> dict[str, Any]:
    """The provenance of a finished run, given its directory or its `eval_info.json`."""
    found = read_json(path / INFO if path.is_dir() else path).get("provenance", {})
    return found if isinstance(found, dict) else {}


def read_info(path: Path) -> tuple[EvalSpec, list[EpisodeResult]]:
    """Read a finished run, given its directory or its `eval_info.json`."""
    file = path / INFO if path.is_dir() else path
    if path.is_dir() and not file.exists():
        if not (path / CONFIG).exists():
            raise RunDirectoryError(f"{path} contains no evaluation: give a directory written by recap eval")
        n_done = (path / EPISODES).read_bytes().count(b"\n") if (path / EPISODES).exists() else 0
        raise RunDirectoryError(f"{path} is not finished ({n_done} episodes): repeat its recap eval command")
    if not file.exists():
        raise RunDirectoryError(f"{path} does not exist: give a run directory or its {INFO}")
    info = read_json(file)
    try:
        spec = EvalSpec.from_json(info["config"])
        results = [result_from_json(entry) for entry in info["episodes"]]
    except (KeyError, TypeError, ValueError, AttributeError, InputError) as error:
        raise RunDirectoryError(f"{file} is not an evaluation ({type(error).__name__}: {error})") from error
    if {(t.task, t.seed) for t in spec.trials()} != {(r.task, r.seed) for r in results}:
        raise RunDirectoryError(f"{file} does not contain the episodes of its config: evaluate again")
    return spec, results
