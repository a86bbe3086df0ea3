from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from recap.cli import main

BOARD = ("--env", "pusht")
TOYS = Path(__file__).parent.parent / "evaluation"  # toy_agents.py is imported from the working directory


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        main([str(a) for a in arguments])
    captured = capsys.readouterr()
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, captured.out, captured.err


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small runs, `hold` and `wander`."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(TOYS)
        for name, agent in (("hold", "hold"), ("wander", "toy_agents:Wanderer")):
            arguments = ["eval", agent, *BOARD, "--tasks", "-30,45", "--seeds", "48:51", "--workers", "1"]
            with pytest.raises(SystemExit, match="0"):
                main([*arguments, "--out", str(folder / name)])
    return folder


def test_eval_prints_results_and_the_next_command(
    capsys: pytest.CaptureFixture[str], runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    arguments = ["eval", "hold", *BOARD, "--tasks=-30,45", "--seeds=48:51", "--out", runs / "hold"]
    code, out, err = call(capsys, *arguments, "--record", "45:48")
    assert (code, err) == (0, "Loading hold for pusht …\n")
    assert "Free successes at 0.85, already past it at the start: 1 (+45:48)." in out
    assert "Ran 0 episodes" in out  # the run has all episodes already
    assert f"Results: {runs / 'hold' / 'eval_info.json'}" in out
    assert "Next: recap compare" in out
    assert sorted(p.name for p in (runs / "hold/videos").iterdir()) == [
        "+45_48_failure.mp4",
        "+45_48_failure.png",
    ]


def test_the_default_directory_is_named_after_the_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(
        "from recap.evaluation.agents import HoldAgent\ndef make(_): return HoldAgent()\n"
    )
    code, _, _ = call(capsys, "eval", "own:make", *BOARD, "--tasks=0", "--seeds=500", "--env.pusher=triangle")
    assert code == 0
    info = json.loads((tmp_path / "runs/eval-own-make-pusht/eval_info.json").read_text())
    assert info["config"]["options"]["pusher"] == "triangle"


def test_errors_of_the_agent_are_exit_code_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(TOYS)
    code, out, _ = call(
        capsys,
        "eval",
        "toy_agents:Fragile",
        *BOARD,
        "--tasks=0",
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
        (["exprt", *BOARD], "unknown agent 'exprt': did you mean 'expert'?"),
        (["expert"], "--env package.module:factory is your own, --env NAME one of dualarm"),
        (["expert"], "--offline --target DATA compares with demonstrations"),
        (["hold", *BOARD, "--env.pusher", "tri"], "unknown pusher 'tri': did you mean 'triangle'?"),
        (["hold", *BOARD, "--env.block=teee"], "unknown block 'teee': did you mean 'tee'?"),
        (["hold", *BOARD, "--env.pushr", "disc"], "'pushr': did you mean 'pusher'?"),
        (["hold", *BOARD, "--env.pusher"], "option --env.pusher needs a value"),
        (["hold", *BOARD, "--pusher", "disc"], "--pusher"),
        (["hold", "--env", "maze"], "unknown env 'maze'"),
        (["hold", "--env", "dualarm", "--env.wording", "rude"], "unknown wording 'rude'"),
        (["hold", *BOARD, "--map", "no.yaml"], "leave --map out"),
        (["hold", "--env=robots.one_arm:OneArmEnv", "--map", "no.yaml"], "no.yaml"),
        (["hold", *BOARD, "--tasks", "abc"], "goal angle 'abc' is not a number"),
        (["hold", *BOARD, "--tasks", "0:9:abc"], "unknown number '0:9:abc'"),
        (["hold", *BOARD, "--seeds", "9:9"], "empty range of seeds '9:9'"),
        (["hold", *BOARD, "--seeds", "5,5"], "seed 5 is given twice"),
        (["hold", *BOARD, "--workers", "0"], "'--workers': 0 is not in the range x>=1"),
        (["hold", *BOARD, "--workers", "two"], "'two' is not a valid integer"),
        (["hold", *BOARD, "--batch-size", "0"], "'--batch-size': 0 is not in the range x>=1"),
        (["hold", *BOARD, "--max-steps", "0"], "max_steps 0"),
        (["hold", *BOARD, "--record", "some"], "unknown episodes to record 'some'"),
        (["hold", *BOARD, "--objects", "guess"], "unknown objects 'guess'"),
        (["hold", *BOARD, "--pose-noise", "4"], "cannot read --pose-noise '4'"),
        (["hold", *BOARD, "--thresholds", "0.9,0.5"], "are not ascending"),
        (["no.such:agent", *BOARD], "cannot import 'no.such' for agent 'no.such:agent'"),
        ([], "no policy given"),
        (["hold", *BOARD, "--mask", "retrieved@3"], "'hold' retrieves nothing, has no network"),
        (["hold", *BOARD, "--retrieval", "contact"], "leave retrieval out"),
        (["expert", *BOARD, "--candidates", "3"], "leave n_candidates out"),
        (["hold", *BOARD, "--matching", "rando"], "unknown matching 'rando': did you mean 'random'?"),
        (["replay", *BOARD, "--action-steps", "0"], "n_action_steps 0 executes nothing"),
        (["pusht-nono"], "unknown agent 'pusht-nono': did you mean 'pusht-nano'?"),
        (["runs/none/best"], "no checkpoint in runs/none/best: it has no config.json"),
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
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replay", *BOARD, "--action-steps", "9"], "n_action_steps 9 is not within 1…8"),
        (["replay", *BOARD, "--pool", "no/such/pool"], "no/such/pool"),
        (["replay", *BOARD, "--pool", "pusht-9x10"], "did you mean 'pusht-9x100'"),
        (["replay", *BOARD, "--retrieval", "objct"], "'objct'"),
        (["replay", *BOARD, "--pool", "dualarm-debug-ur5e"], "it is of another robot"),
        (["dualarm-small", *BOARD], "policy 'dualarm-small' does not act in env 'pusht'"),
        (["replay", "--env", "dualarm"], "give --pool"),
        (["hold", *BOARD, "--ray", "127.0.0.1:1"], "no Ray cluster answers at '127.0.0.1:1'"),
    ],
)
def test_an_error_found_while_loading_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], message: str
) -> None:
    code, out, err = call(capsys, "eval", *arguments, "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    loading, error = err.splitlines()
    assert loading.startswith("Loading ")
    assert error.startswith("recap: ")
    assert message in error
    assert not (tmp_path / "run").exists()


def test_a_policy_uses_its_trained_retrieval_by_default(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from recap.policies.checkpoint import save_pretrained
    from toy_policy import in_world, toy_config, toy_policy

    save_pretrained(toy_policy(toy_config(inputs="S", **in_world())), tmp_path / "policy")
    words = ["--tasks=0", "--seeds", "500", "--max-steps", "9", "--workers", "1", "--out", tmp_path / "run"]
    code, _, _ = call(capsys, "eval", tmp_path / "policy", *words)
    assert code == 0
    info = json.loads((tmp_path / "run" / "eval_info.json").read_text("utf-8"))
    assert info["provenance"]["settings"]["retrieval"] == "pusht-world"
    assert info["config"]["env"] == "pusht", "the env that the retrieval belongs to"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--retrieval", "world"], "was trained with retrieval pusht-object, not pusht-world"),
        (["--sampler", "euclid"], "unknown sampler 'euclid': did you mean 'euler'?"),
        (["--denoising-steps", "0"], "0 denoising steps denoise nothing"),
        (["--temperature", "3"], "temperature 3.0 is out of range"),
        (["--action-steps", "9"], "n_action_steps 9 is not within 1…8"),
    ],
)
def test_settings_that_a_policy_cannot_run_with_are_a_one_line_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str], message: str
) -> None:
    from recap.policies.checkpoint import save_pretrained
    from toy_policy import toy_config, toy_policy

    save_pretrained(toy_policy(toy_config(inputs="S")), tmp_path / "policy")
    code, out, err = call(capsys, "eval", tmp_path / "policy", *BOARD, *options, "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    loading, error = err.splitlines()
    assert loading.startswith("Loading ")
    assert message in error
    assert not (tmp_path / "run").exists()


def test_options_with_the_prefix_env_go_to_the_environment(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["--tasks=0", "--seeds=500", "--max-steps=2", "--workers=1", "--out", tmp_path / "run"]
    code, _, _ = call(capsys, "eval", "hold", *BOARD, "--env.pusher", "triangle", "--env.block=ell", *words)
    assert code == 0
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["options"] == {"pusher": "triangle", "block": "ell"}


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_a_saved_evaluation_config_gives_the_same_results(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str
) -> None:
    from recap import config as configs
    from specs import pusht_spec

    spec = pusht_spec("hold", pusher="triangle", angles=(-30.0,), seeds=(500, 501), max_steps=3)
    configs.save_file(tmp_path / f"mine{suffix}", spec)
    how = ["--workers", "1", "--batch-size", "2"]
    code, _, err = call(
        capsys, "eval", "--config", tmp_path / f"mine{suffix}", *how, "--out", tmp_path / "one"
    )
    assert (code, err) == (0, "Loading hold for pusht …\n")
    for number, name in enumerate(("config.json", "eval_info.json")):
        again = tmp_path / f"again{number}"
        assert call(capsys, "eval", "--config", tmp_path / "one" / name, *how, "--out", again)[0] == 0
        assert (again / "eval_info.json").read_bytes() == (tmp_path / "one/eval_info.json").read_bytes()


@pytest.mark.parametrize(
    ("beside", "message"),
    [
        (["expert"], "leave POLICY out"),
        (["--env", "pusht"], "leave --env out"),
        (["--seeds", "1"], "leave --seeds out"),
        (["--action-steps", "2"], "leave --action-steps out"),
        (["--no-residual"], "leave --residual out"),
        (["--env.pusher", "disc"], "leave --env.pusher out"),
    ],
)
def test_options_beside_a_saved_evaluation_config_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, beside: list[str], message: str
) -> None:
    (tmp_path / "mine.yaml").write_text("agent: {policy: hold}\nenv: pusht\n", "utf-8")
    code, _, err = call(
        capsys, "eval", *beside, "--config", tmp_path / "mine.yaml", "--out", tmp_path / "run"
    )
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "mine.yaml cannot be read"),
        ("- 1\n", "mine.yaml is missing, or holds no settings"),
        ("{", "mine.yaml cannot be read"),
        ("agent: {policy: hold}\nenv: pusht\nangles: [0]\n", "mine.yaml has an unknown key 'angles'"),
        ("agent: {polcy: hold}\nenv: pusht\n", "'agent.polcy': did you mean 'policy'?"),
        ("agent: {policy: hold}\nenv: pusht\nseeds: 3\n", "mine.yaml cannot be read at 'seeds'"),
        ("agent: {policy: exprt}\nenv: pusht\n", "unknown agent 'exprt': did you mean 'expert'?"),
        ("agent: {policy: hold}\nenv: pusht\noptions: {pushr: disc}\n", "'pushr': did you mean 'pusher'?"),
    ],
)
def test_an_invalid_evaluation_config_is_a_one_line_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / "mine.yaml").write_text(text, "utf-8")
    code, out, err = call(capsys, "eval", "--config", tmp_path / "mine.yaml", "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_custom_env_is_evaluated(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "map.yaml").write_text("tasks: [lift, press]\nmax_steps: 3\n", "utf-8")
    env = ["--env", "robots.one_arm:OneArmEnv", "--map", "map.yaml"]
    code, _, _ = call(capsys, "eval", "hold", *env, "--tasks", "press", "--seeds", "1:3", "--workers", "1")
    assert code == 0
    info = json.loads((tmp_path / "runs/eval-hold-robots.one_arm-OneArmEnv/eval_info.json").read_text())
    assert [(e["task"], e["seed"], e["steps"]) for e in info["episodes"]] == [
        ("press", 1, 3),
        ("press", 2, 3),
    ]
    code, _, err = call(capsys, "eval", "hold", *env, "--tasks", "push", "--seeds", "1", "--out", "b")
    assert code == 2
    assert err.startswith("recap: unknown task 'push': choose one of lift, press")
    code, _, err = call(capsys, "eval", "hold", *env, "--env.speed", "2", "--out", "b")
    assert code == 2
    assert "'speed'" in err


def test_compare_counts_paired_outcomes(capsys: pytest.CaptureFixture[str], runs: Path) -> None:
    capsys.readouterr()
    both = ("compare", runs / "hold", runs / "wander/eval_info.json")
    code, out, err = call(capsys, *both)
    assert (code, err) == (0, "")
    assert ["agent", "hold", "toy_agents:Wanderer"] in [line.split() for line in out.splitlines()]
    plain = json.loads(call(capsys, *both, "--json")[1])
    row = plain["b_minus_a"]["0.85"]["+45"]
    assert row["both"] + row["only_a"] == 1  # one start is past 0.85 already, so hold succeeds there
    assert row["n"] == 3


def test_compare_refuses_paths_without_an_evaluation(
    capsys: pytest.CaptureFixture[str], runs: Path, tmp_path: Path
) -> None:
    (tmp_path / "torn.json").write_text('{"config": {')
    for other, message in (
        (tmp_path / "nothing", "does not exist"),
        (tmp_path, "contains no evaluation"),
        (tmp_path / "torn.json", "is damaged, not JSON"),
    ):
        code, out, err = call(capsys, "compare", runs / "hold", other)
        assert (code, out) == (2, "")
        assert message in err
        assert err.count("\n") == 1


def test_help_imports_nothing_heavy_and_ends_with_an_example() -> None:
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


def test_dual_arm_evaluations_take_task_names_and_groups(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
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
    code, out, err = call(capsys, *arms, "--tasks", "lift_pot,grab_roller", "--env.wording", "unseen")
    assert (code, err) == (0, "Loading expert for dualarm …\n")
    assert "lift pot" in out
    info = json.loads((tmp_path / "run" / "eval_info.json").read_text())
    assert [(e["task"], e["seed"], e["outcome"]) for e in info["episodes"]] == [
        ("lift_pot", 500, "success"),
        ("grab_roller", 500, "success"),
    ]
    code, _, err = call(capsys, *arms, "--tasks", "lift_pan")
    assert code == 2
    assert err.startswith("recap: unknown task 'lift_pan': did you mean 'lift_pot'?")
    code, _, _ = call(capsys, *arms[:-1], tmp_path / "level", "--tasks", "level1", "--max-steps", "1")
    tasks = json.loads((tmp_path / "level/config.json").read_text())["tasks"]
    assert code == 0
    assert len(tasks) > 1
    assert "level1" not in tasks, "a group is replaced by its tasks"
