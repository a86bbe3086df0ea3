"""`recap train` on data small enough for a test."""

import subprocess
import sys
from pathlib import Path

import pytest

from recap.cli import main
from recap.cli import train as command
from recap.policies.checkpoint import from_pretrained
from recap.training.presets import PRESETS
from recap.training.records import read_metrics
from toy_policy import write_demonstrations

SMALL = ("policy.inputs=S", "batch_size=4", "validate_every=1")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return write_demonstrations(tmp_path_factory.mktemp("demonstrations"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_:
        main(["train", *map(str, arguments)])
    captured = capsys.readouterr()
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, captured.out, captured.err


def settings(files: tuple[str, str], *changes: str) -> list[str]:
    named = [f"target={files[0]}", f"pool={files[1]}", *SMALL, *changes]
    return [part for change in named for part in ("--set", change)]


def test_it_tells_where_the_policy_is_and_what_to_do_next(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, files: tuple[str, str]
) -> None:
    out = tmp_path / "run"
    arguments = ["debug", *settings(files), "--out", out, "--iterations", 2, "--seed", 3, "--device", "cpu"]
    code, shown, err = call(capsys, *arguments)
    assert (code, err) == (0, "")
    assert f"Best: {out / 'best'} (iteration " in shown
    assert f"Last: {out / 'last'}" in shown
    assert "Iterations: 2 of 2\n" in shown
    assert "Best held-out action loss: " in shown
    assert f"Next: recap eval {out / 'best'} --pusher triangle --mode aligned --pool {files[1]}" in shown
    assert from_pretrained(out / "best").config.inputs == "S"
    assert call(capsys, *arguments)[0] == 0, "the same command finds it done"
    code, _, err = call(capsys, *arguments[:-4], "--seed", 4)
    assert code == 2
    assert "holds a run with another seed" in err


def test_the_default_directory_is_named_after_the_preset(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    files: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(capsys, "debug", *settings(files), "--iterations", 1)[0] == 0
    assert (tmp_path / "runs/train-debug/best/config.json").exists()


def test_the_policy_is_tried_out_on_the_way(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    files: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "ROLLOUT_SEEDS", (500,))
    monkeypatch.setattr(command, "ROLLOUT_ANGLES", (45.0,))
    arguments = ["debug", *settings(files), "--out", tmp_path / "run", "--iterations", 2, "--rollouts", 2]
    assert call(capsys, *arguments)[0] == 0
    (row,) = [row for row in read_metrics(tmp_path / "run") if "rollout" in row]
    assert row["iteration"] == 2
    assert set(row["rollout"]) == {"success_0.85", "success_0.95", "mean_coverage", "errors"}
    assert row["rollout"]["errors"] == 0


def test_ctrl_c_is_one_line_and_exit_code_130(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    files: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from recap.training import trainer

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    arguments = ["debug", *settings(files), "--out", tmp_path / "run", "--iterations", 2]
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "judge", interrupted)
        code, out, err = call(capsys, *arguments)
    assert (code, out) == (130, "")
    assert err == "recap: stopped at iteration 1 of 2: kept; the same command resumes\n"
    assert call(capsys, *arguments)[0] == 0


def test_a_dry_run_shows_the_plan_and_does_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "8")
    code, out, err = call(capsys, "cosmos-2b", "--dry-run")
    assert (code, err) == (0, "")
    for words in (
        "future_proprio *",
        "2.059 B",
        "16 × 4 × 8 = 512",
        "1,764",
        "10.240 M",
        "FLOPs",
        "4.79 GiB",
    ):
        assert words in out
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("RANK", "1")
    assert call(capsys, "cosmos-2b", "--dry-run") == (0, "", ""), "only the main process prints"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pusht-nanno"], "unknown training preset 'pusht-nanno': did you mean 'pusht-nano'?"),
        (
            ["debug", "--set", "iterations=3"],
            "there is no setting 'iterations': did you mean 'n_iterations'?",
        ),
        (["debug", "--set", "seed"], "'seed' is no setting: write key=value"),
        (["debug", "--iterations", "0"], "0 is not in the range x>=1"),
        (["debug", "--device", "gpu"], "unknown device 'gpu'"),
        (["cosmos-2b", "--rollouts", "5"], "preset 'cosmos-2b' cannot be rolled out here"),
        (["debug-dualarm", "--rollouts", "5"], "preset 'debug-dualarm' cannot be rolled out here"),
        (["debug", "--set", "target=no/such.safetensors"], "no/such.safetensors"),
        ([], "Missing argument 'PRESET'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], message: str
) -> None:
    code, out, err = call(capsys, *arguments, "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert err.startswith("recap: ")
    assert message in err
    assert err.count("\n") == 1


def test_help_is_light_and_ends_with_an_example() -> None:
    script = (
        "import sys; from recap.cli import main\n"
        "try: main(['train', '--help'])\n"
        "finally: print(sorted({'torch', 'numpy', 'accelerate', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
    assert "Example:\n    recap train debug " in done.stdout
    unbroken = "".join(done.stdout.split())
    assert [name for name in PRESETS if name not in unbroken] == [], "every preset is named"
