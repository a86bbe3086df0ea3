from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from recap.cli import main

TOYS = Path(__file__).parent.parent / "evaluation"  # toy_agents.py is imported from the current directory


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        main([str(a) for a in arguments])
    captured = capsys.readouterr()
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, captured.out, captured.err


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small runs, `still` and `wander`."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(TOYS)
        for name, agent in (("still", "still"), ("wander", "toy_agents:Wanderer")):
            arguments = ["eval", agent, "--angles", "-30,45", "--seeds", "48:51", "--workers", "1"]
            with pytest.raises(SystemExit, match="0"):
                main([*arguments, "--out", str(folder / name)])
    return folder


def test_eval_tells_what_came_out_and_what_to_do_next(
    capsys: pytest.CaptureFixture[str], runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    arguments = ["eval", "still", "--angles=-30,45", "--seeds=48:51", "--out", runs / "still"]
    code, out, err = call(capsys, *arguments, "--record", "45:48")
    assert (code, err) == (0, "")
    assert "Free successes at 0.85, already past it at the start: 1 (+45:48)." in out
    assert "Ran 0 episodes" in out  # they were there
    assert f"Results: {runs / 'still' / 'eval_info.json'}" in out
    assert "Next: recap compare" in out
    assert sorted(p.name for p in (runs / "still/videos").iterdir()) == [
        "+45_48_failure.mp4",
        "+45_48_failure.png",
    ]


def test_the_default_directory_is_named_after_the_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(
        "from recap.evaluation.agents import StillAgent\ndef make(_): return StillAgent()\n"
    )
    code, _, _ = call(capsys, "eval", "own:make", "--angles=0", "--seeds=500", "--pusher=triangle")
    assert code == 0
    assert (tmp_path / "runs/eval-own-make-triangle/eval_info.json").exists()


def test_errors_of_the_agent_are_exit_code_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(TOYS)
    code, out, _ = call(
        capsys,
        "eval",
        "toy_agents:Fragile",
        "--angles=0",
        "--seeds=502:504",
        "--workers=1",
        "--out",
        tmp_path,
    )
    assert code == 1
    assert "First error, 0:503: ZeroDivisionError: the toy broke" in out
    assert "--retry-errors" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["exprt"], "unknown agent 'exprt': did you mean 'expert'?"),
        (["still", "--pusher", "tri"], "unknown pusher 'tri': did you mean 'triangle'?"),
        (["still", "--env", "maze"], "unknown env 'maze': choose one of pusht"),
        (["still", "--block", "teee"], "unknown block 'teee': did you mean 'tee'?"),
        (["still", "--angles", "abc"], "unknown angle 'abc': give degrees such as -30, or a range -60:60:15"),
        (["still", "--seeds", "9:9"], "empty range of seeds '9:9'"),
        (["still", "--seeds", "5,5"], "seed 5 is given twice"),
        (["still", "--workers", "0"], "workers 0 is too few"),
        (["still", "--workers", "two"], "'two' is not a valid integer"),
        (["still", "--record", "some"], "unknown episodes to record 'some'"),
        (["still", "--ray", "127.0.0.1:1"], "cannot reach a Ray cluster at '127.0.0.1:1'"),
        (["no.such:agent"], "cannot import 'no.such' for agent 'no.such:agent'"),
        ([], "Missing argument 'AGENT'"),
        (["still", "--matching", "rando"], "unknown matching 'rando': did you mean 'random'?"),
        (["pusht-nono"], "unknown agent 'pusht-nono': did you mean 'pusht-nano'?"),
        (["runs/none/best"], "no checkpoint in runs/none/best: it has no config.json"),
        (["replay", "--action-steps", "9"], "n_action_steps 9 is not within 1…8"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], message: str
) -> None:
    code, out, err = call(capsys, "eval", *arguments, "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert err.startswith("recap: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_policy_retrieves_as_it_was_trained_to_unless_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from recap.policies.checkpoint import save_pretrained
    from toy_policy import toy_config, toy_policy

    save_pretrained(toy_policy(toy_config(inputs="S", mode="single")), tmp_path / "policy")
    words = ["--angles=0", "--seeds", "500", "--workers", "1", "--out", tmp_path / "run"]
    code, _, _ = call(capsys, "eval", tmp_path / "policy", *words)
    assert code == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text("utf-8"))["mode"] == "single"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mode", "single"], "was trained in mode aligned: give --mode aligned"),
        (["--sampler", "euclid"], "unknown sampler 'euclid': did you mean 'euler'?"),
        (["--denoising-steps", "0"], "0 denoising steps denoise nothing"),
        (["--temperature", "3"], "temperature 3.0 is out of range"),
        (["--action-steps", "9"], "n_action_steps 9 is not within 1…8"),
    ],
)
def test_a_policy_that_cannot_be_run_so_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str], message: str
) -> None:
    from recap.policies.checkpoint import save_pretrained
    from toy_policy import toy_config, toy_policy

    save_pretrained(toy_policy(toy_config(inputs="S")), tmp_path / "policy")
    code, out, err = call(capsys, "eval", tmp_path / "policy", *options, "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_compare(capsys: pytest.CaptureFixture[str], runs: Path, tmp_path: Path) -> None:
    capsys.readouterr()
    code, out, err = call(
        capsys, "compare", runs / "still", runs / "wander/eval_info.json", "--json", tmp_path / "new/c.json"
    )
    assert (code, err) == (0, "")
    assert ["agent", "still", "toy_agents:Wanderer"] in [line.split() for line in out.splitlines()]
    plain = json.loads((tmp_path / "new/c.json").read_text())
    row = plain["b_minus_a"]["0.85"]["+45"]
    assert row["both"] + row["only_a"] == 1  # still is past 0.85 at one start, for nothing
    assert row["n"] == 3


def test_compare_refuses_what_is_no_evaluation(
    capsys: pytest.CaptureFixture[str], runs: Path, tmp_path: Path
) -> None:
    (tmp_path / "torn.json").write_text('{"config": {')
    for other, message in (
        (tmp_path / "nothing", "does not exist"),
        (tmp_path, "holds no evaluation"),
        (tmp_path / "torn.json", "is damaged, not JSON"),
    ):
        code, out, err = call(capsys, "compare", runs / "still", other)
        assert (code, out) == (2, "")
        assert message in err
        assert err.count("\n") == 1


def test_help_is_light_and_ends_with_an_example() -> None:
    script = (
        "import sys; from recap.cli import main\n"
        "try: main([sys.argv[1], '--help'])\n"
        "finally: print(sorted({'numpy', 'numba', 'gymnasium', 'rich', 'ray', 'av'} & set(sys.modules)))"
    )
    for command in ("eval", "compare"):
        done = subprocess.run(
            [sys.executable, "-c", script, command], capture_output=True, text=True, check=True
        )
        assert done.stdout.endswith("[]\n")
        assert f"Example:\n    recap {command} " in done.stdout


def test_two_arms_are_evaluated_by_task(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arms = [
        "eval",
        "expert",
        "--env",
        "dualarm",
        "--seeds",
        "500",
        "--workers",
        "1",
        "--out",
        tmp_path / "run",
    ]
    code, out, err = call(capsys, *arms, "--task", "lift_pot,grab_roller", "--wording", "unseen")
    assert (code, err) == (0, "")
    assert "lift_pot" in out
    info = json.loads((tmp_path / "run" / "eval_info.json").read_text())
    assert [(e["task"], e["seed"], e["outcome"]) for e in info["episodes"]] == [
        ("lift_pot", 500, "success"),
        ("grab_roller", 500, "success"),
    ]
    code, _, err = call(capsys, *arms, "--task", "lift_pan")
    assert (code, err.strip()) == (2, "recap: unknown task 'lift_pan': did you mean 'lift_pot'?")
    code, _, err = call(
        capsys, "eval", "replay", "--env", "dualarm", "--seeds", "500", "--out", tmp_path / "b"
    )
    assert "give --pool" in err
