from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from recap.errors import RunDirectoryError
from recap.evaluation.run_directory import open_run, read_info
from recap.evaluation.runner import evaluate
from recap.types import EpisodeResult
from specs import pusht_spec

SPEC = pusht_spec("hold", angles=(0.0, 45.0), seeds=(500, 501), max_steps=5)
RESULT = EpisodeResult("0", 500, "failure", 5, {"coverage": 0.25}, {"0.85": None, "0.95": None})
ERROR = EpisodeResult("+45", 501, "error", 1, {"coverage": 0.0}, {"0.85": None, "0.95": None}, "Traceback…\n")


def test_results_are_written_at_once_and_read_on_resume(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", SPEC) as run:
        run.append(RESULT)
        run.append(RESULT)
        run.append(ERROR)
        assert len((tmp_path / "run/episodes.jsonl").read_text().splitlines()) == 2
    with open_run(tmp_path / "run", SPEC) as run:
        assert list(run.results.values()) == [RESULT, ERROR]
        assert [(t.task, t.seed) for t in run.missing()] == [("0", 501), ("+45", 500)]
    with open_run(tmp_path / "run", SPEC, retry_errors=True) as run:
        assert list(run.results.values()) == [RESULT]
    assert len((tmp_path / "run/episodes.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("torn", [b'{"task": "0", "se', b'{"task": "0"}\n', b"\x00\x00\xff", b"\n"])
def test_an_incomplete_last_line_is_dropped(tmp_path: Path, torn: bytes) -> None:
    with open_run(tmp_path, SPEC) as run:
        run.append(RESULT)
    whole = (tmp_path / "episodes.jsonl").read_bytes()
    (tmp_path / "episodes.jsonl").write_bytes(whole + torn)
    with open_run(tmp_path, SPEC) as run:
        assert list(run.results) == [("0", 500)]
        run.append(ERROR)
    assert len((tmp_path / "episodes.jsonl").read_bytes().splitlines()) == 2


def test_damage_before_the_last_line_is_an_error(tmp_path: Path) -> None:
    with open_run(tmp_path, SPEC) as run:
        run.append(RESULT)
    file = tmp_path / "episodes.jsonl"
    file.write_bytes(b"garbage\n" + file.read_bytes())
    with pytest.raises(RunDirectoryError, match="damaged at line 1"), open_run(tmp_path, SPEC):
        pass


def test_a_run_directory_is_locked_while_in_use(tmp_path: Path) -> None:
    with open_run(tmp_path, SPEC), pytest.raises(RunDirectoryError, match="is in use by another process"):
        evaluate(SPEC, tmp_path)
    evaluate(SPEC, tmp_path)


def test_a_run_directory_with_another_config_is_an_error(tmp_path: Path) -> None:
    evaluate(SPEC, tmp_path)
    with pytest.raises(
        RunDirectoryError, match=r'another options\.pusher \("disc", now "triangle"\): give another'
    ):
        evaluate(replace(SPEC, options={"pusher": "triangle"}, seeds=(1,)), tmp_path)
    with pytest.raises(RunDirectoryError, match="another seeds"):
        evaluate(replace(SPEC, seeds=tuple(range(100))), tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(RunDirectoryError, match=r"config\.json is damaged"):
        evaluate(SPEC, tmp_path)


def test_a_folder_with_other_files_is_an_error_and_stays_unchanged(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("dear to me")
    with pytest.raises(RunDirectoryError, match="not empty and holds no run"):
        evaluate(SPEC, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(RunDirectoryError, match="is a file"):
        evaluate(SPEC, tmp_path / "thesis.tex")


def test_eval_info_exists_only_for_a_finished_run(tmp_path: Path) -> None:
    evaluate(SPEC, tmp_path)
    spec, results = read_info(tmp_path)
    assert spec == SPEC
    assert read_info(tmp_path / "eval_info.json") == (spec, results)
    info = json.loads((tmp_path / "eval_info.json").read_text())
    assert list(info) == ["config", "episodes", "summary"]
    assert [(e["task"], e["seed"]) for e in info["episodes"]] == [
        ("0", 500),
        ("0", 501),
        ("+45", 500),
        ("+45", 501),
    ]
    assert set(info["episodes"][0]) == {"task", "seed", "outcome", "steps", "metrics", "first_step"}
    assert set(info["episodes"][0]["metrics"]) == {"coverage"}
    lines = (tmp_path / "episodes.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "episodes.jsonl").write_text("".join(lines[:-1]))
    with open_run(tmp_path, SPEC):
        assert not (tmp_path / "eval_info.json").exists()
    with pytest.raises(RunDirectoryError, match=r"is not finished \(3 episodes\)"):
        read_info(tmp_path)


def test_read_info_of_something_else_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="contains no evaluation"):
        read_info(tmp_path)
    with pytest.raises(RunDirectoryError, match="does not exist"):
        read_info(tmp_path / "nothing")
    evaluate(SPEC, tmp_path)
    file = tmp_path / "eval_info.json"
    info = json.loads(file.read_text())
    broken = {
        "{": "is damaged, not JSON",
        "[]": "is not an evaluation",
        json.dumps({**info, "episodes": info["episodes"][:2]}): "does not contain the episodes of its config",
        json.dumps({**info, "episodes": [{}]}): "is not an evaluation",
        json.dumps({**info, "config": {}}): "is not an evaluation",
    }
    for text, message in broken.items():
        file.write_text(text)
        with pytest.raises(RunDirectoryError, match=message):
            read_info(tmp_path)
