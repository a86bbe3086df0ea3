"""`recap train` on data small enough for a test."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import save_file

from recap import config as configs
from recap.cli import main
from recap.policies.checkpoint import from_pretrained, read_training
from recap.suites import suites
from recap.training.presets import SIZES, preset
from recap.training.records import read_metrics
from recap_worlds.pusht.suite import PushTSuite
from robots import one_arm
from robots.recording import record_many, to_lerobot
from toy_policy import write_demonstrations

SMALL = ("policy.inputs=S", "batch_size=4", "validate_every=1")
# Progress lines, printed on slow machines.
STAGES = (
    "reading",
    "retrieval pairs",
    "moments",
    "pictures",
    "autoencoder",
    "encoding",
    "iterations",
    "first",
)


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


def said(err: str) -> list[str]:
    """The lines on stderr except progress and preparation times."""
    lines = [line for line in err.splitlines() if not line.startswith(STAGES)]
    return [line for line in lines if " s until the first iteration: " not in line]


def settings(files: tuple[str, str], *changes: str) -> list[str]:
    named = [f"target={files[0]}", f"pool={files[1]}", *SMALL, *changes]
    return [part for change in named for part in ("--set", change)]


def test_train_prints_the_checkpoints_and_the_next_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, files: tuple[str, str]
) -> None:
    out = tmp_path / "run"
    arguments = ["debug", *settings(files), "--out", out, "--iterations", 2, "--seed", 3, "--device", "cpu"]
    code, shown, err = call(capsys, *arguments)
    assert (code, said(err)) == (0, ["Training debug: 2 iterations; loading demonstrations …"])
    assert f"Best: {out / 'best'} (iteration " in shown
    assert f"Last: {out / 'last'}" in shown
    assert "Iterations: 2 of 2\n" in shown
    assert "Best held-out action loss: " in shown
    facts, _ = read_training(out / "best")
    ours, replay = facts["held_out_policy_error"], facts["held_out_replay_error"]
    assert f"Error on held-out scenes (RMS): policy {ours:.3g}, replay {replay:.3g}\n" in shown
    assert ("--no-residual" in shown) == (ours >= replay), "a policy no better than replay is reported"
    assert (
        f"Next: recap eval {out / 'best'} --env pusht --env.pusher triangle --pool {files[1]} --seeds "
        "500:505\n" in shown
    )
    assert from_pretrained(out / "best").config.inputs == "S"
    assert " s until the first iteration: reading " in err
    assert call(capsys, *arguments)[0] == 0, "the same command again finds the run complete"
    code, _, err = call(capsys, *arguments[:-4], "--seed", 4)
    assert code == 2
    assert "holds a run with another seed" in err


def test_the_default_directory_is_named_after_the_recipe(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    files: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(capsys, "debug", *settings(files), "--iterations", 1)[0] == 0
    assert (tmp_path / "runs/train-debug/best/config.json").exists()


@pytest.mark.parametrize("changes", [(), ("policy.retrieval_name=pusht-world", "policy.canonical=false")])
def test_training_evaluates_rollouts_on_development_seeds(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    files: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    changes: tuple[str, ...],
) -> None:
    monkeypatch.setattr(PushTSuite, "development_seeds", range(500, 501))
    named = settings(files, *changes)
    arguments = ["debug", *named, "--out", tmp_path / "run", "--iterations", 2, "--rollouts", 2]
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
        patch.setattr(trainer, "validate", interrupted)
        code, out, err = call(capsys, *arguments)
    assert (code, out) == (130, "")
    assert said(err)[1:] == ["recap: stopped at iteration 1 of 2: kept; the same command resumes"]
    assert call(capsys, *arguments)[0] == 0


def test_ctrl_c_before_the_first_iteration_is_one_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    files: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from recap.training import trainer
    from recap.training.processes import Stopped

    def interrupted(*_: object, **__: object) -> None:
        raise Stopped

    monkeypatch.setattr(trainer, "train", interrupted)
    code, _, err = call(capsys, "debug", *settings(files), "--out", tmp_path / "run", "--iterations", 2)
    assert (code, said(err)[-1]) == (130, "recap: stopped; the same command begins again or resumes")


def test_a_dry_run_prints_the_plan_and_writes_nothing(
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
        (["pusht-nanno"], "unknown training recipe 'pusht-nanno': did you mean 'pusht-nano'?"),
        (
            ["debug", "--set", "iterations=3"],
            "there is no setting 'iterations': did you mean 'n_iterations'?",
        ),
        (["debug", "--set", "seed"], "cannot read 'seed': give key=value"),
        (["debug", "--set", "policy=3"], "setting 'policy' has parts"),
        (["debug", "--set", "seed.x=3"], "setting 'seed' has no parts"),
        (["debug", "--set", "seed=many"], "setting 'seed' is 'many'"),
        (["debug", "--set", "batch_size=0"], "batch_size is 0: give 1 or more"),
        (["debug", "--set", "learning_rate=nan"], "setting 'learning_rate' is nan: give a finite number"),
        (["debug", "--set", "learning_rate=0"], "learning_rate is 0.0: give more than 0"),
        (["debug", "--set", "policy.image.cameras=front"], "unknown camera 'front': choose one of top"),
        (["debug", "--set", "policy.image.future_cameras=front"], "unknown camera 'front'"),
        (["debug", "--set", "policy.retrieval=false"], "set residual=false"),
        (["debug", "--set", "policy.chunk_size=4"], "n_action_steps 8 is not within 1…4"),
        (["debug", "--set", "batch_size=9", "--set", "accumulate=2"], "batch_size 9"),
        (["debug", "--iterations", "0"], "0 is not in the range x>=1"),
        (["debug", "--device", "gpu"], "unknown device 'gpu'"),
        (["debug", "--log", "tensorbord"], "unknown log 'tensorbord': did you mean 'tensorboard'?"),
        (["debug", "--init-from", "x", "--set", "init=y"], "give one of the two"),
        (["debug", "--rollouts", "5", "--env", "maze"], "unknown env 'maze'"),
        (["no/robot.yaml"], "no/robot.yaml"),
        (["debug", "--size", "small"], "recipe 'debug' has its own size"),
        (["small"], "unknown training recipe 'small'"),
        (["debug", "--retrieval", "wrold"], "unknown retrieval 'wrold'"),
        (["--config", "no/config.yaml"], "no/config.yaml"),
        (["debug", "--config", "no/config.yaml"], "--config has its own recipe, robot and size"),
        ([], "recap train --list shows them"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from recap.training import trainer

    monkeypatch.setattr(trainer, "load_data", lambda *_: pytest.fail("nothing is loaded"))
    code, out, err = call(capsys, *arguments, "--out", tmp_path / "runs/run")
    assert (code, out) == (2, "")
    assert err.startswith("recap: ")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["target=no/such.safetensors"], "no/such.safetensors"),
        (["pool_where=goal_angle=7"], "goal_angle=7"),
        (["held_out=0"], "held_out 0"),
        (["policy.retrieval_name=pusht-world"], "policy.canonical="),
        (["init=no/such/policy"], "no/such/policy"),
    ],
)
def test_an_error_found_in_the_data_leaves_no_files(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    files: tuple[str, str],
    changes: list[str],
    message: str,
) -> None:
    code, out, err = call(capsys, "debug", *settings(files, *changes), "--out", tmp_path / "runs/run")
    assert (code, out) == (2, "")
    training, error = said(err)
    assert training.startswith("Training debug")
    assert error.startswith("recap: ")
    assert message in error
    assert not (tmp_path / "runs").exists()


def test_a_run_whose_data_are_missing_is_kept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = write_demonstrations(tmp_path)
    arguments = ["debug", *settings(files), "--out", tmp_path / "run", "--iterations", 1]
    assert call(capsys, *arguments)[0] == 0
    before = sorted(file.name for file in (tmp_path / "run").iterdir())
    Path(files[0]).unlink()
    assert call(capsys, *arguments)[0] == 2
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == before


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["policy.retrieval=false", "policy.residual=false"], {"retrieval": False, "residual": False}),
        (["policy.residual=false", "policy.retrieval=false"], {"retrieval": False, "residual": False}),
        (["policy.chunk_size=4", "policy.n_action_steps=2"], {"chunk_size": 4, "n_action_steps": 2}),
        (["policy.n_action_steps=12", "policy.chunk_size=12"], {"chunk_size": 12, "n_action_steps": 12}),
        (["co_training=true", "policy.retrieval=false", "policy.residual=false"], {"retrieval": False}),
        (["policy.image.cameras=", "policy.inputs=S"], {"inputs": "S"}),
    ],
)
def test_settings_that_depend_on_each_other_are_checked_together(
    capsys: pytest.CaptureFixture[str], changes: list[str], expected: dict[str, Any]
) -> None:
    words = [part for change in changes for part in ("--set", change)]
    code, out, err = call(capsys, "debug", *words, "--show-config")
    assert (code, err) == (0, "")
    policy = yaml.safe_load(out)["policy"]
    assert {name: policy[name] for name in expected} == expected


def test_the_list_names_every_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "--list")
    assert (code, err) == (0, "")
    named = {word.strip(",") for word in out.split()}
    assert {name for suite in suites().values() for name in suite.training_presets()} | set(SIZES) <= named
    assert {f"{name}:" for name in suites()} <= named


@pytest.mark.parametrize("recipe", ["debug", "debug-pi0", "dualarm-nano", "cosmos-2b"])
def test_show_config_prints_a_config_that_train_accepts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, recipe: str
) -> None:
    code, out, _ = call(capsys, recipe, "--set", "pairs.k=5", "--seed", 7, "--show-config")
    assert code == 0
    (tmp_path / "mine.yaml").write_text(out, "utf-8")
    code, again, _ = call(capsys, "--config", tmp_path / "mine.yaml", "--show-config")
    assert (code, again) == (0, out)
    assert yaml.safe_load(out) == preset(recipe, ["pairs.k=5", "seed=7"]).to_json()
    code, changed, _ = call(
        capsys, "--config", tmp_path / "mine.yaml", "--set", "pairs.k=2", "--seed", 8, "--show-config"
    )
    assert code == 0
    found = yaml.safe_load(changed)
    assert (found["pairs"]["k"], found["seed"], found["preset"]) == (2, 8, recipe)


def test_a_saved_configuration_is_trained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, files: tuple[str, str]
) -> None:
    changes = [f"target={files[0]}", f"pool={files[1]}", *SMALL, "n_iterations=1"]
    configs.save_file(tmp_path / "mine.yaml", preset("debug", changes).to_json())
    assert call(capsys, "--config", tmp_path / "mine.yaml", "--out", tmp_path / "run")[0] == 0
    kept = tmp_path / "run/config.json"
    assert call(capsys, "--config", kept, "--out", tmp_path / "run")[0] == 0, (
        "the run's config.json is accepted too"
    )


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("learning_rate", float("nan"), "learning_rate is nan: give a finite number"),
        ("batch_size", 0, "batch_size is 0"),
        ("batch_size", "many", "cannot be read at 'batch_size'"),
        ("sede", 3, "unknown key 'sede': did you mean 'seed'?"),
        ("policy", None, "backbone"),
    ],
)
def test_an_invalid_configuration_is_a_one_line_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, key: str, value: object, message: str
) -> None:
    configs.save_file(tmp_path / "mine.yaml", {**preset("debug").to_json(), key: value})
    code, out, err = call(capsys, "--config", tmp_path / "mine.yaml", "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


ROBOT = """
name: one-arm
control_hz: 20
proprio:
  - {name: position, kind: position, size: 3}
  - {name: rotation, kind: rotation6d}
  - {name: gripper, kind: gripper}
cameras: {front: {}, wrist: {}}
"""


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    """A robot description, and datasets of this robot and of another one."""
    folder = tmp_path_factory.mktemp("arm")
    (folder / "robot.yaml").write_text(ROBOT, "utf-8")
    for name in ("target", "pool"):
        env = one_arm.OneArmEnv(name)
        to_lerobot(record_many(env, one_arm.expert, ("lift",), range(3), f"arm-{name}"), folder / name)
    return str(folder / "robot.yaml"), str(folder / "target"), str(folder / "pool")


def test_a_custom_robot_is_trained_from_its_description(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arm: tuple[str, str, str]
) -> None:
    robot, target, pool = arm
    arguments = [robot, "--target", target, "--pool", pool, "--size", "debug", "--iterations", 1]
    code, out, err = call(capsys, *arguments, "--out", tmp_path / "run")
    assert (code, said(err)) == (0, ["Training one-arm-debug: 1 iterations; loading demonstrations …"])
    assert from_pretrained(tmp_path / "run/best").config.image.cameras == ("front", "wrist")
    best = tmp_path / "run/best"
    following = f"Next: recap eval {best} --offline --target {target} --pool {pool}, or with --env "
    assert following in out, "the recipe has no env, although an env's recipe has the same name"
    assert f"recap serve {best} --pool {pool}" in out


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with a backbone."""
    info = tmp_path / "site/tiny_backbone-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-backbone\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[recap.backbones]\ntiny = tiny_backbone:TinyConfig\n")
    shutil.copy(Path(__file__).with_name("tiny_backbone.py"), tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


@pytest.mark.usefixtures("tiny")
def test_a_backbone_of_another_package_is_found_trained_and_loaded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arm: tuple[str, str, str]
) -> None:
    robot, target, pool = arm
    assert "tiny-debug" in call(capsys, "--list")[1]
    given = [robot, "--target", target, "--pool", pool, "--size", "tiny-debug"]
    wide = [*given, "--set", "policy.network.width=24"]
    code, _, err = call(capsys, *wide, "--out", tmp_path / "run", "--device", "cpu")
    assert code == 0, err
    policy = from_pretrained(tmp_path / "run/best")
    assert (policy.config.network.backbone, policy.config.network.width) == ("tiny", 24)
    assert "tags: [robotics, retrieval, tiny-model]" in (tmp_path / "run/best/README.md").read_text()

    weights = policy.model.network.state_dict()
    (tmp_path / "published").mkdir()
    save_file(weights, tmp_path / "published/model.safetensors")
    more = ["--backbone", tmp_path / "published", "--iterations", 1, "--set", "learning_rate=1e-12"]
    assert call(capsys, *wide, *more, "--out", tmp_path / "second", "--device", "cpu")[0] == 0
    again = from_pretrained(tmp_path / "second/last").model.network.state_dict()
    assert all(torch.allclose(value, again[key], rtol=0, atol=1e-9) for key, value in weights.items())


@pytest.mark.usefixtures("tiny")
def test_a_backbone_is_selected_by_a_setting(capsys: pytest.CaptureFixture[str]) -> None:
    pixels = ["image.channels=3", "image.scale=1", "future_image=false", "future_state=false"]
    changes = [part for key in ["network=tiny", *pixels] for part in ("--set", f"policy.{key}")]
    code, out, _ = call(capsys, "debug", *changes, "--show-config")
    shown = yaml.safe_load(out)["policy"]
    assert (code, shown["backbone"], shown["network"]) == (
        0,
        "tiny",
        {"num_layers": 2, "width": 16, "patch": 8},
    )
    code, _, err = call(capsys, "debug", "--set", "policy.network=tinny", "--show-config")
    assert (code, err) == (2, "recap: unknown backbone 'tinny': did you mean 'tiny'? [input.unknown]\n")


@pytest.mark.parametrize("inputs", ["S", "I+S"])
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("weights", "no/such/folder", "does not exist: give a model directory or a hub name"),
        ("weights", "someone/model", "the hub cannot be reached and the model was not downloaded before"),
        ("weights", "EMPTY", "no weights in "),
        ("autoencoder", "someone/model", "the hub cannot be reached"),
        ("init_from", "no/such/policy", "no checkpoint in no/such/policy"),
        ("policy.text", "sentence:someone/model", "the hub cannot be reached"),
    ],
)
def test_missing_weights_are_reported_before_any_data_is_read(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    value: str,
    message: str,
    inputs: str,
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    if key == "autoencoder" and inputs == "S":
        pytest.skip("a policy without images needs none")
    (tmp_path / "empty").mkdir()
    place = value.replace("EMPTY", str(tmp_path / "empty"))
    missing = settings(("no/target.safetensors", "no/pool.safetensors"), f"{key}={place}")
    out = tmp_path / "runs/run"
    code, _, err = call(capsys, "debug", *missing, "--set", f"policy.inputs={inputs}", "--out", out)
    assert code == 2
    (line,) = [line for line in said(err) if line.startswith("recap: ")]
    assert message in line
    assert not out.parent.exists()


def test_a_retrieval_chosen_by_name_sets_the_frame(capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for name in ("world", "object"):
        code, out, err = call(capsys, "pusht-nano", "--retrieval", name, "--show-config")
        assert (code, err) == (0, "")
        policy = yaml.safe_load(out)["policy"]
        found.append((policy["retrieval_name"], policy["canonical"]))
    assert found == [("world", False), ("pusht-object", True)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--size", "tiny"], "unknown size 'tiny' for robot 'one-arm'"),
        ([], "give --target"),
        (["--target", "x"], "give --pool"),
        (["--target", "x", "--pool", "y", "--rollouts", "5"], "has no env: give --env"),
        (["--set", "policy.image.cameras=fron"], "unknown camera 'fron': did you mean 'front'?"),
        (["--set", "policy.inputs=S"], "robot 'one-arm' has no objects"),
    ],
)
def test_wrong_options_for_a_robot_are_a_one_line_error(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arm: tuple[str, str, str],
    words: list[str],
    message: str,
) -> None:
    code, out, err = call(capsys, arm[0], *words, "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_help_imports_nothing_heavy_and_ends_with_an_example() -> None:
    script = (
        "import sys; from recap.cli import main\n"
        "try: main(['train', '--help'])\n"
        "finally: print(sorted({'torch', 'numpy', 'accelerate', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
    assert "Example:\n    recap train robot.yaml " in done.stdout
    assert "--list" in done.stdout


def test_the_backbone_option_sets_weights_and_autoencoder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for recipe, autoencoder in (("cosmos-2b", "org/name@v1"), ("debug-pi0", None)):
        code, out, _ = call(capsys, recipe, "--backbone", "org/name@v1", "--show-config")
        values = yaml.safe_load(out)
        assert (code, values["weights"], values["autoencoder"]) == (0, "org/name@v1", autoencoder)
