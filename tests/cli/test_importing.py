"""`recap pool inspect`: the source's keys, the imported fields, findings, and `--map` syntax."""

from __future__ import annotations

from pathlib import Path

import click
import h5py  # type: ignore[import-untyped]
import numpy as np
import pytest
from click.testing import CliRunner
from lerobot_files import write_older

from recap.cli.importing import inspect, parse_mapping
from recap.errors import DatasetError, InputError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    t = np.linspace(0, 1, 20)[:, None]
    with h5py.File(tmp_path / "push.hdf5", "w") as file:
        for i in range(3):
            state = 0.3 + 0.1 * np.sin(t * [3 + i, 4] + [0, 1])
            file[f"data/demo_{i}/obs/agent_pos"] = state
            file[f"data/demo_{i}/obs/image"] = np.zeros((20, 8, 8, 3), np.uint8)
            file[f"data/demo_{i}/actions"] = np.concatenate([state[1:], state[-1:]])
    return tmp_path / "push.hdf5"


def call(*arguments: object) -> tuple[int, str]:
    """Calls the command as `recap` does: errors are raised; returns exit code and output."""
    runner = CliRunner()
    with runner.isolation() as (out, _, _):
        code = inspect.main([str(a) for a in arguments], standalone_mode=False)
        return int(code), out.getvalue().decode()


def test_inspect_shows_source_keys_and_imported_fields(source: Path) -> None:
    code, out = call(source, "--fps", 10, "--map", "task=push the T, gently, image:top=obs/image")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert ["obs/agent_pos", "20", "x", "2", "float64", "proprio"] in lines
    assert ["proprio", "20", "x", "2", "float32", "obs/agent_pos"] in lines
    assert ["image:top", "20", "x", "8", "x", "8", "x", "3", "uint8", "obs/image"] in lines
    assert "3 episodes of 20 to 20 frames, 60 in all, at 10 fps" in out
    assert "first task: 'push the T, gently'" in out
    assert "Findings: none" in out
    same = f"{source} --map 'task=push the T, gently, image:top=obs/image' --fps 10"
    assert f"Next: recap init {same} --out robot.yaml" in out
    assert f"recap pool add POOL {same} adds these" in out


def test_inspect_shows_findings_and_exits_with_1_on_errors(source: Path) -> None:
    code, out = call(source, "--fps=10")
    assert code == 0
    assert "warning: task: there is no instruction" in out
    assert "(3 episodes, first 'push/demo_0')" in out
    with h5py.File(source, "r+") as file:
        file["data/demo_1/actions"][3] = np.nan
    code, out = call(source, "--fps=10", "--map", "proprio=obs/agent_pos[0:2]")
    assert code == 1
    assert "obs/agent_pos[0:2]" in out  # brackets are not read as markup
    assert "error: action: 2 values are NaN or infinite" in out
    assert "an import would be refused" in out


def test_wrong_mappings_formats_and_paths_are_errors(source: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'obs/agent_pos'"):
        call(source, "--fps=10", "--map", "proprio=obs/agent_poss")
    with pytest.raises(InputError, match="unknown format"):
        call(source, "--format", "zarr")
    with pytest.raises(DatasetError, match=r"did you mean 'push\.hdf5'"):
        call(tmp_path / "pushh.hdf5")


def test_the_help_has_an_example() -> None:
    result = CliRunner().invoke(inspect, ["--help"])
    assert result.exit_code == 0
    assert "Example:\n    recap pool inspect" in result.output
    assert isinstance(inspect, click.Command)


def test_map_options_are_parsed() -> None:
    assert parse_mapping([]) == {}
    assert parse_mapping(["proprio=a, action=next:b[0:3]+c@wxyz", "object:block=d,image:top=e"]) == {
        "proprio": "a",
        "action": "next:b[0:3]+c@wxyz",
        "object:block": "d",
        "image:top": "e",
    }
    assert parse_mapping(["task=push, then turn = done, goal=g"]) == {
        "task": "push, then turn = done",
        "goal": "g",
    }
    assert parse_mapping(['task="a fixed sentence"']) == {"task": '"a fixed sentence"'}
    for bad in ("", "proprio", "=x", "proprio=", "proprio=a,,"):
        if bad == "proprio=a,,":
            assert parse_mapping([bad]) == {"proprio": "a"}
            continue
        with pytest.raises(InputError, match="FIELD=KEY"):
            parse_mapping([bad])
    with pytest.raises(InputError, match="twice"):
        parse_mapping(["goal=a", "goal=b"])


def test_damaged_episodes_are_listed_one_by_one(tmp_path: Path) -> None:
    root = write_older(tmp_path / "set")
    for number in (0, 2):
        (root / f"videos/chunk-000/observation.images.front/episode_00000{number}.mp4").write_bytes(b"")
    code, out = call(root)
    assert code == 1
    assert [line.split(":")[1].strip() for line in out.splitlines() if line.startswith("error")] == [
        "episode 0",
        "episode 2",
    ]
    assert "it is empty, 0 bytes" in out
    assert "--skip-damaged" in out
    code, out = call(root, "--skip-damaged")
    assert code == 0
    assert out.count("it is left out") == 2
