"""Offline evaluation: action chunks compared with recorded demonstrations, with known errors."""

from __future__ import annotations

import io
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from episodes import observation_of
from recap.assembly import AgentConfig
from recap.body import Body, Feature
from recap.cli import main
from recap.cli.offline import _tables
from recap.errors import InputError
from recap.evaluation.agents import Trial
from recap.evaluation.offline import (
    ALONE,
    HOLD,
    MEAN,
    POLICY,
    REPLAYED,
    Offline,
    Watched,
    evaluate_offline,
    feature_errors,
    held_out_episodes,
)
from recap.evaluation.offline_files import write_film, write_rrd
from recap.policies.checkpoint import save_pretrained
from recap.pool.content import content_id
from recap.pool.memory import MemoryPool, MemoryView
from recap.pool.packed import write_packed
from recap.pool.store import Pool
from recap.robot import ActionMode, RobotSpec
from recap.types import Episode
from recap.video import video_size
from toy_policy import demonstrations, drawn, toy_config, toy_policy, write_demonstrations

N = 24  # frames of a demonstration


def reach(number: int, embodiment: str, scene: str = "", task: str = "reach") -> Episode:
    """Four joints that move at constant speed from a random start; each action is the next state."""
    rng = np.random.default_rng(number)
    start, end = rng.uniform(-1, 1, (2, 4))
    path = (start + np.linspace(0, 1, N + 1)[:, None] * (end - start)).astype(np.float32)
    return Episode(
        id=f"{embodiment}-{number}",
        scene_id=scene or f"scene-{number}",
        task=task,
        embodiment=embodiment,
        fps=10.0,
        timestamps=np.arange(N) / 10,
        proprio=path[:-1],
        actions=path[1:],
    )


def packed(folder: Path, name: str, episodes: list[Episode]) -> str:
    """Write the episodes as a packed file."""
    write_packed(MemoryPool(episodes).view(), folder / f"{name}.safetensors")
    return str(folder / f"{name}.safetensors")


def replayed(folder: Path, target: list[Episode], pool: list[Episode], *numbers: int) -> Offline:
    """The result of replay on these target demonstrations."""
    uris = packed(folder, "target", target), packed(folder, "pool", pool)
    return evaluate_offline(AgentConfig(), *uris, episodes=numbers)[0]


def test_replay_from_a_pool_with_equal_demonstrations_has_no_error(tmp_path: Path) -> None:
    target = [reach(i, "arm") for i in range(3)]
    pool = [reach(i, "other", scene=f"elsewhere-{i}") for i in range(3)]
    found = replayed(tmp_path, target, pool)
    assert found.errors[REPLAYED] == pytest.approx((0, 0, 0), abs=1e-6)
    assert (found.same_task, found.phase_error) == ((1, 1, 1), (0, 0, 0))
    assert found.numbers == (0, 1, 2)
    assert found.n_moments == 3 * N / found.every
    assert set(found.errors) == {REPLAYED, HOLD, MEAN}
    assert found.difference is None


def test_the_hold_error_is_the_distance_the_robot_moves(tmp_path: Path) -> None:
    target = [reach(i, "arm") for i in range(4)]
    found = replayed(tmp_path, target, [reach(9, "other")], 0)
    step = (target[0].actions[-1] - target[0].actions[0]) / (N - 1)
    ahead = 1 + np.arange(found.chunk_size)
    spread = np.concatenate([e.actions for e in target[1:]]).astype(np.float64).std(axis=0)
    apart = np.sqrt(np.square(ahead[:, None] * step / spread).mean())
    assert found.errors[HOLD][0] == pytest.approx(apart, rel=1e-4)
    (name,) = found.units
    assert found.features[HOLD][name][0] == pytest.approx(
        ahead.mean() * np.sqrt(np.square(step).mean()), rel=1e-4
    )


def test_constant_dimensions_do_not_reduce_the_error(tmp_path: Path) -> None:
    moving = [reach(i, "arm") for i in range(3)]
    wider = [
        replace(e, proprio=np.pad(e.proprio, ((0, 0), (0, 3))), actions=np.pad(e.actions, ((0, 0), (0, 3))))
        for e in moving
    ]
    a, b = (replayed(tmp_path, some, some, 0) for some in (moving, wider))
    assert a.errors[HOLD] == pytest.approx(b.errors[HOLD])
    assert a.errors[MEAN] == pytest.approx(b.errors[MEAN])


def test_the_demonstration_of_the_same_scene_is_never_retrieved(tmp_path: Path) -> None:
    twin, other = reach(0, "other"), reach(5, "other")
    found = replayed(tmp_path, [reach(0, "arm")], [twin, other])
    assert found.errors[REPLAYED][0] > 0.1


def test_matches_of_another_task_lower_the_same_task_rate(tmp_path: Path) -> None:
    target = [reach(0, "arm"), reach(1, "arm", task="press")]
    pool = [reach(0, "other", "elsewhere", task="press"), reach(3, "other", task="press")]
    found = replayed(tmp_path, target, pool)
    assert found.same_task is not None
    assert found.same_task[0] == pytest.approx(0.5)


def test_feature_errors_are_in_the_units_of_the_features() -> None:
    kinds = {
        "tool": ("position", 3),
        "turn": ("rotation6d", 6),
        "wrist": ("angle", 1),
        "joints": ("joint", 2),
    }
    body = Body(tuple(Feature(name, *kind) for name, kind in kinds.items()))
    true = np.array([[0, 0, 0, 1, 0, 0, 0, 1, 0, 3.1, 0, 0]], np.float64)
    guess = np.array([[3, 4, 0, 0, 1, 0, -1, 0, 0, -3.1, 1, 7]], np.float64)
    assert feature_errors(body, guess, true)[0] == pytest.approx([5, 90, 2 * np.pi - 6.2, 5])


@pytest.mark.parametrize(
    ("action", "mode", "held"),
    [("state", "absolute", True), ("goal", "absolute", False), ("goal", "delta", True)],
)
def test_hold_is_left_out_where_the_current_action_is_unknown(
    action: str, mode: ActionMode, held: bool, tmp_path: Path
) -> None:
    robot = RobotSpec("arm", 10.0, (Feature("state", "joint", 4),), (Feature(action, "joint", 4),), mode)
    Pool.create(tmp_path / "pool", robot=robot).add([reach(i, "other") for i in range(2)])
    target = packed(tmp_path, "target", [reach(i, "arm") for i in range(3, 5)])
    found, _ = evaluate_offline(AgentConfig(), target, str(tmp_path / "pool"))
    assert (HOLD in found.errors) == held
    assert any("'hold' is left out" in note for note in found.notes) != held
    if mode == "delta":  # holding still is a zero action
        sizes = [np.sqrt(np.square(reach(i, "arm").actions).mean(axis=1)).mean() for i in range(3, 5)]
        assert found.features[HOLD][action][0] == pytest.approx(np.mean(sizes), rel=1e-3)


def test_evaluated_episodes_are_held_out_ones_else_new_ones_else_all() -> None:
    view = MemoryView([reach(i, "arm") for i in range(4)])
    ids = [content_id(view.episode(name)) for name in view.episode_ids]
    assert held_out_episodes(view, {}) == [0, 1, 2, 3]
    assert held_out_episodes(view, {"train": frozenset(ids[:2]), "held_out": frozenset(ids[2:3])}) == [2]
    assert held_out_episodes(view, {"train": frozenset(ids[:2])}) == [2, 3]
    assert held_out_episodes(view, {"train": frozenset(ids)}) == [0, 1, 2, 3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Policies with images, with state only (trained on four of six episodes) and without retrieval."""
    place = tmp_path_factory.mktemp("offline")
    write_demonstrations(place)
    target = [content_id(drawn(e)) for e in demonstrations("triangle", range(6))]
    sides = {"train": target[:4], "held_out": target[4:]}
    save_pretrained(toy_policy(), place / "policy", {"retrieval_dropout": 0.1}, contents=sides)
    state = toy_policy(toy_config(inputs="S"))
    save_pretrained(state, place / "state", {"retrieval_dropout": 0.0}, contents=sides)
    alone = toy_policy(toy_config(inputs="S", retrieval=False, residual=False))
    save_pretrained(alone, place / "alone")
    return place


def looked_at(folder: Path, policy: str, *numbers: int, n_watched: int = 0) -> tuple[Offline, list[Watched]]:
    """A policy of the folder on the target; without numbers, on its held-out demonstrations."""
    return evaluate_offline(
        AgentConfig(str(folder / policy)),
        *(str(folder / f"{name}.safetensors") for name in ("target", "pool")),
        episodes=numbers or None,
        n_watched=n_watched,
    )


def test_a_policy_is_compared_with_replay_and_with_itself_without_retrieval(folder: Path) -> None:
    found, watched = looked_at(folder, "policy", n_watched=1)
    assert found.numbers == (4, 5)
    assert list(found.errors) == [POLICY, REPLAYED, ALONE, HOLD, MEAN]
    assert found.difference is not None
    apart = found.errors[POLICY][0] - found.errors[REPLAYED][0]
    assert found.difference[0] == pytest.approx(apart)
    assert not any("learned" in note for note in found.notes)
    first = watched[0].looks[0]
    assert first.errors[POLICY] != first.errors[ALONE]
    assert first.plan is not None
    base = first.plan.conditioning.actions[0] + first.plan.chunk.residual
    carried = watched[0].agent.to_world(first.plan.conditioning, base)
    assert first.chunks[POLICY] == pytest.approx(carried, abs=1e-3), (
        "it is the retrieved chunk and a residual"
    )


def test_training_demonstrations_among_the_evaluated_ones_are_noted(folder: Path) -> None:
    found, _ = looked_at(folder, "state", 0, 1, 4)
    assert "The policy learned from 2 of these 3 demonstrations." in found.notes
    assert ALONE not in found.errors, "it was trained without dropout"
    assert any("'no retrieval' is left out" in note for note in found.notes)


def test_a_policy_without_retrieval_has_no_replay_errors(folder: Path) -> None:
    found, _ = looked_at(folder, "alone", 0)
    assert list(found.errors) == [POLICY, HOLD, MEAN]
    assert (found.same_task, found.descriptors, found.confidence) == (None, None, ())
    assert any("does not say what it learned from" in note for note in found.notes)


def test_a_target_of_another_robot_is_an_error(folder: Path, tmp_path: Path) -> None:
    target = packed(tmp_path, "arm", [reach(0, "arm")])
    with pytest.raises(InputError) as refused:
        evaluate_offline(AgentConfig(str(folder / "state")), target, str(folder / "pool.safetensors"))
    assert refused.value.code == "robot.mismatch"


def test_a_target_without_required_objects_is_an_error(folder: Path, tmp_path: Path) -> None:
    pool = str(folder / "pool.safetensors")
    bare = replace(demonstrations("triangle", range(1))[0], objects={})
    with pytest.raises(InputError, match="has no object 'block'"):
        evaluate_offline(AgentConfig(str(folder / "state")), packed(tmp_path, "bare", [bare]), pool)


def test_a_target_with_another_frame_rate_is_noted(folder: Path, tmp_path: Path) -> None:
    slow = replace(demonstrations("triangle", range(1))[0], fps=5.0)
    found, _ = evaluate_offline(
        AgentConfig(str(folder / "state")),
        packed(tmp_path, "slow", [slow]),
        str(folder / "pool.safetensors"),
    )
    assert "The target has 5 frames a second, the robot 10 actions." in found.notes


def test_rrd_without_rerun_is_an_error_before_the_run(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rerun", None)
    words = ("--target", folder / "target.safetensors", "--pool", folder / "pool.safetensors", "--rrd")
    assert call("eval", folder / "state", "--offline", *words, "--out", tmp_path / "out") == 2
    assert "recap-robot[rerun]" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_pairing_rule_of_training_is_used(folder: Path, tmp_path: Path) -> None:
    policy = toy_policy(toy_config(inputs="S"))
    found = []
    for rule in ("scene", "order", "no/such.csv"):
        save_pretrained(policy, tmp_path / "paired", {"pair_by": rule})
        shutil.copy(folder / "target.safetensors", tmp_path / "pool.safetensors")  # every scene has a twin
        data = str(folder / "target.safetensors"), str(tmp_path / "pool.safetensors")
        _, (watched,) = evaluate_offline(
            AgentConfig(str(tmp_path / "paired")), *data, episodes=(1,), n_watched=1
        )
        retrieval = watched.looks[0].retrieval
        assert retrieval is not None
        assert watched.episode.id not in retrieval.candidates
        found.append(watched.episode.scene_id)
    assert found == ["scene-1", "push the block/1", "scene-1"]


def test_replay_with_a_policys_settings_uses_its_held_out_episodes_and_pairs(
    folder: Path, tmp_path: Path
) -> None:
    """The same held-out demonstrations and the same excluded pairs give the same replay error."""
    policy = str(tmp_path / "paired")
    target = [content_id(drawn(e)) for e in demonstrations("triangle", range(6))]
    sides = {"train": target[:4], "held_out": target[4:]}
    toy = toy_policy(toy_config(inputs="S"))
    save_pretrained(toy, tmp_path / "paired", {"pair_by": "order"}, contents=sides)
    data = str(folder / "target.safetensors"), str(folder / "pool.safetensors")
    found, _ = evaluate_offline(AgentConfig(policy), *data)
    control, (watched,) = evaluate_offline(AgentConfig("replay", settings_of=policy), *data, n_watched=1)
    assert control.numbers == found.numbers == (4, 5)
    assert watched.episode.scene_id == "push the block/4"
    assert control.errors[REPLAYED] == pytest.approx(found.errors[REPLAYED], abs=1e-3)


def test_a_video_and_a_rerun_recording_are_written(folder: Path, tmp_path: Path) -> None:
    rr = pytest.importorskip("rerun.experimental")
    _, (watched,) = looked_at(folder, "policy", 4, n_watched=1)
    film = write_film(watched, tmp_path)
    assert film == tmp_path / "episode_4.mp4"
    assert (tmp_path / "episode_4.png").stat().st_size > 1000
    assert 4 * 240 in video_size(film), "now, predicted, retrieved, errors"
    file = write_rrd(watched, "target", tmp_path)
    assert file.name == "target_episode_4.rrd"
    store = rr.RrdReader(file).store()
    paths = {str(column.entity_path) for column in store.schema().component_columns()}
    wanted = {"/query/top", "/match/top", "/match/distance", "/match/confidence", "/predicted/top"}
    wanted |= {"/chunk/policy", "/chunk/replay", "/error/policy", "/action/recorded/position"}
    assert wanted <= paths


def test_a_demonstration_without_images_has_no_video(tmp_path: Path) -> None:
    uri = packed(tmp_path, "arm", [reach(i, "arm") for i in range(2)])
    _, (watched,) = evaluate_offline(AgentConfig(), uri, uri, episodes=(0,), n_watched=1)
    assert write_film(watched, tmp_path) is None


def call(*words: object) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    assert isinstance(end.value.code, int)
    return end.value.code


def test_the_command_writes_json_for_several_policies_on_the_same_demonstrations(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ("--target", folder / "target.safetensors", "--pool", folder / "pool.safetensors")
    policies = f"{folder / 'state'},{folder / 'alone'}"
    assert call("eval", policies, "--offline", *data, "--out", tmp_path / "out", "--record", "0") == 0
    told = capsys.readouterr().out
    for label in ("policy: the chunk that would be sent", "replay: what was retrieved, without the network"):
        row = next(line for line in told.splitlines() if line.startswith(label))
        assert "…" not in row
        assert row.endswith("]"), "the interval is not truncated"
    assert "Lower is better" in told
    assert f"Next: recap serve {folder / 'state'} --pool {folder / 'pool.safetensors'}" in told
    written = json.loads((tmp_path / "out" / "offline.json").read_text("utf-8"))
    assert [result["numbers"] for result in written["results"]] == [[4, 5], [4, 5]]
    one = ("eval", folder / "state", "--offline", *data, "--episodes", "0:2", "--record", "0", "--json")
    assert call(*one, "--out", tmp_path / "one") == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["numbers"] == [0, 1]


def test_tables_are_not_truncated_and_the_difference_is_stated_in_words() -> None:
    features = {f"joint_{i}": (0.1 * i, 0.0, 1.0) for i in range(16)}
    found = Offline(
        policy="mine",
        target="data",
        pool="pool",
        retrieval="world",
        numbers=(0,),
        episodes=("a",),
        n_moments=9,
        chunk_size=8,
        every=8,
        units=dict.fromkeys(features, "rad"),
        errors={POLICY: (0.5, 0.4, 0.6), REPLAYED: (0.25, 0.2, 0.3), HOLD: (0.4, 0.3, 0.5)},
        features={POLICY: features, REPLAYED: features, HOLD: features},
        difference=(0.25, 0.2, 0.3),
        same_task=(0.75, 0.5, 1.0),
        phase_error=None,
        confidence=(),
        descriptors=None,
        notes=(),
    )

    def shown(result: Offline) -> str:
        console = Console(width=80, file=io.StringIO(), highlight=False)
        console.print(_tables(result))
        assert isinstance(console.file, io.StringIO)
        return " ".join(console.file.getvalue().split())

    told = shown(found)
    assert "…" not in told
    assert "joint_15, rad 1.5 1.5 1.5" in told
    assert "the network hurts: replay is nearer" in told
    assert "Holding still is as near as the policy" in told
    assert "Matches of the right task: 75% [50%, 100%]" in told
    better = shown(
        replace(found, errors={**found.errors, POLICY: (0.1, 0, 1)}, difference=(-0.1, -0.2, -0.05))
    )
    assert "the network helps" in better
    for low, told_of in ((0.51, True), (0.06, False)):
        bins = [{"low": 0.0, "high": 0.05, "n": 5, "share": low, "errors": {}}]
        bins += [{"low": 0.05, "high": 1.0, "n": 5, "share": 1 - low, "errors": {}}]
        words = shown(replace(found, confidence=tuple(bins)))
        assert ("not calibrated for this robot" in words) == told_of
        assert (f"--min-confidence 0.05 would hold it at {low:.0%} of these looks" in words) == told_of
    assert "Holding still" not in better
    assert "may be chance" in shown(replace(found, difference=(0.0, -0.1, 0.1)))
    alone = replace(found, errors={REPLAYED: (0.2, 0, 1), HOLD: (0.1, 0, 1)}, difference=None)
    assert "as near as the policy" not in shown(alone), "there is no policy"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--offline", "--target", "x.safetensors"), "give --pool"),
        (
            ("--offline", "--target", "x", "--pool", "x", "--seeds", "3"),
            "leave --seeds out",
        ),
        (("--offline", "--target", "x", "--pool", "x", "--env.block", "ell"), "leave --env.block out"),
        (("--offline", "--target", "x", "--pool", "x", "--record", "failures"), "--record 'failures'"),
        (("--target", "x"), "need --offline"),
    ],
)
def test_conflicting_options_are_errors(
    words: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("eval", "replay", *words, "--out", tmp_path / "out") == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_output_path_that_is_a_file_is_an_error_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("mine")
    assert call("eval", "replay", "--offline", "--target", "x", "--pool", "x", "--out", tmp_path / "out") == 2
    assert "[run-directory]" in capsys.readouterr().err
    assert (tmp_path / "out").read_text() == "mine"


def test_an_output_folder_that_cannot_be_created_is_an_error_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    below = tmp_path / "file" / "out"
    assert call("eval", "replay", "--offline", "--target", "x", "--pool", "x", "--out", below) == 2
    assert "[run-directory]" in capsys.readouterr().err


def test_an_empty_target_or_an_unknown_episode_number_is_an_error(tmp_path: Path) -> None:
    pool = packed(tmp_path, "pool", [reach(0, "other")])
    empty = packed(tmp_path, "empty", [])
    with pytest.raises(InputError, match="contains no demonstration"):
        evaluate_offline(AgentConfig(), empty, pool)
    with pytest.raises(InputError, match="has no demonstration 3"):
        evaluate_offline(AgentConfig(), pool, pool, episodes=(3,))


def test_offline_chunks_equal_the_actions_of_the_running_agent(folder: Path) -> None:
    _, (watched,) = looked_at(folder, "state", 4, n_watched=1)
    agent, episode = watched.agent, watched.episode
    agent.reset(0, Trial("", 0), episode.context, frozenset((episode.id, episode.scene_id)))
    sent = [agent.act([0], [observation_of(episode, t)])[0] for t in range(len(episode))]
    for look in watched.looks:
        assert look.chunks[POLICY][0] == pytest.approx(sent[look.t], abs=1e-3)
