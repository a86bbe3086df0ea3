"""`recap demo` with a tiny untrained policy, whose results have no meaning."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

from recap.agent import RetrievalAgent
from recap.cli import main
from recap.errors import InputError, RunDirectoryError
from recap.evaluation.film import CAPTION, TILE
from recap.evaluation.rollouts import run_trials
from recap.evaluation.settings import agent_settings
from recap.policies.autoencoder import FrameEncoder, build_autoencoder
from recap.policies.checkpoint import save_pretrained
from recap.policies.config import PolicyConfig
from recap.policies.policy import Statistics, TrainedPolicy
from recap.policies.wam import WorldActionModel
from recap.pool.store import Pool
from recap.types import EpisodeResult
from recap.video import VideoFrames, video_length
from recap_apps.demo.report import LEGEND, conclusion, next_steps, page, table_rows
from recap_apps.demo.run import empty_pool, film_seed, run_demo
from recap_apps.demo.spec import ADDITIONS, ANGLE, KEYS, N_SEEDS, DemoResult, DemoSpec, Stage, gain
from recap_apps.demo.teaching import collect
from recap_worlds.pusht.collecting import Demo
from recap_worlds.pusht.env import PushTEnv
from toy_policy import toy_config, toy_stamp

TINY_CONFIG = toy_config()


def make_policy(path: Path, config: PolicyConfig = TINY_CONFIG) -> Path:
    """A checkpoint with random weights."""
    torch.manual_seed(0)
    model = WorldActionModel(config)
    slots = {slot.name: slot.width for slot in model.layout.vectors}
    statistics = Statistics(
        {name: np.zeros(width, np.float32) for name, width in slots.items()},
        {name: np.ones(width, np.float32) for name, width in slots.items()},
    )
    encoder = FrameEncoder(build_autoencoder()) if config.sees else None
    save_pretrained(TrainedPolicy(model, statistics, toy_stamp(config.retrieval_name), encoder), path)
    return path


def spec_for(policy: Path, **changes: object) -> DemoSpec:
    return replace(
        DemoSpec(str(policy), additions=(1, 2), n_seeds=2, max_steps=12),
        **changes,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[DemoResult, Path]:
    folder = tmp_path_factory.mktemp("demo")
    out = folder / "out"
    return run_demo(spec_for(make_policy(folder / "policy")), out), out


def test_the_pool_grows_while_the_weights_stay_the_same(shown: tuple[DemoResult, Path]) -> None:
    result, out = shown
    assert result.fingerprints[0] == result.fingerprints[1]
    assert [stage.n_demonstrations for stage in result.stages] == [0, 1, 3]
    appended = [name for stage in result.stages if stage.absorbed for name in stage.absorbed.ids]
    pool = Pool.open(out / "pool")
    assert list(pool.ids()) == appended
    assert appended == [f"pusht/tee/{ANGLE:+g}/{800_000 + i}/disc" for i in range(3)]
    episode = pool.get(appended[0])
    assert episode.embodiment == "disc"
    assert episode.success
    assert episode.images["top"][0].shape == (96, 96, 3)


def test_each_stage_retrieves_from_the_appended_demonstrations(shown: tuple[DemoResult, Path]) -> None:
    first, *later = shown[0].stages
    assert first.retrieved == ()
    assert first.absorbed is None
    there: set[str] = set()
    for stage in later:
        assert stage.absorbed is not None
        there |= set(stage.absorbed.ids)
        assert stage.retrieved
        assert set(stage.retrieved) <= there
        assert stage.absorbed.total_ms == stage.absorbed.add_ms + stage.absorbed.use_ms > 0
        assert stage.absorbed.collect_s > 0


def test_every_stage_is_evaluated_on_the_same_starts(shown: tuple[DemoResult, Path]) -> None:
    for stage in shown[0].stages:
        for results in (stage.policy, stage.replay):
            assert [r.seed for r in results] == [900, 901]
            assert {r.outcome for r in results} == {"failure"}
    env = PushTEnv(pusher="triangle", goal_angle=ANGLE)
    begin = [env.reset(seed=seed)[1]["coverage"] for seed in (900, 901)]
    assert [r.metrics["coverage"] for r in shown[0].stages[0].replay] == begin, (
        "replay with an empty pool does not move"
    )


def test_collected_demonstrations_are_in_order_of_their_index(monkeypatch: pytest.MonkeyPatch) -> None:
    def backwards(work: object, demos: list[Demo], workers: int) -> Iterator[tuple[int, str]]:
        yield from ((demo.index, f"episode {demo.index}") for demo in reversed(demos))

    monkeypatch.setattr("recap_apps.demo.teaching.run_in_workers", backwards)
    told: list[tuple[int, int]] = []
    found: list[object] = list(collect(DemoSpec().collection(0, 96), 3, lambda *n: told.append(n)))
    assert found == [f"episode {i}" for i in range(ADDITIONS[0])]
    assert told[-1] == (ADDITIONS[0], ADDITIONS[0])


def test_the_written_files_are_well_formed(shown: tuple[DemoResult, Path]) -> None:
    result, out = shown
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")
    length = video_length(out / "demo.mp4", 20.0)
    assert length > result.spec.max_steps
    frame = VideoFrames(out / "demo.mp4", 0, length, 20.0)[length - 1]
    assert frame.shape == (CAPTION + 2 * (CAPTION + TILE), 3 * TILE, 3)
    numbers = json.loads((out / "demo.json").read_text("utf-8"))
    assert [stage["demonstrations"] for stage in numbers["stages"]] == [0, 1, 3]
    assert numbers["stages"][2]["policy"]["0.85"]["n"] == 2
    assert numbers["fingerprint_before"] == numbers["fingerprint_after"] == result.fingerprints[0]


class Tags(HTMLParser):
    """Parses a page: its tags, checked for balance, and its links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "poster")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_complete_and_links_only_to_its_folder(shown: tuple[DemoResult, Path]) -> None:
    result, out = shown
    text = (out / "index.html").read_text("utf-8")
    tags = Tags(text)
    assert tags.seen.count("tr") == 1 + 3 + 1 + 2
    assert "script" not in tags.seen
    assert all((out / link).is_file() for link in tags.links)
    assert "prefers-color-scheme: dark" in text
    assert text.count(result.fingerprints[0]) == 2
    assert LEGEND.split(".")[0] in text


def test_the_page_escapes_its_values(shown: tuple[DemoResult, Path]) -> None:
    hostile = "</code><script>alert('x')</script>&\""
    spec = replace(shown[0].spec, policy=hostile)
    text = page(replace(shown[0], spec=spec, fingerprints=(hostile, hostile)), f"{hostile}/pool")
    assert "script" not in Tags(text).seen
    assert "alert" in text


def test_a_repeated_demo_starts_with_an_empty_pool_and_keeps_old_versions(
    shown: tuple[DemoResult, Path], tmp_path: Path
) -> None:
    pool = empty_pool(tmp_path / "pool")
    source = Pool.open(shown[1] / "pool")
    version = pool.add(list(source))
    again = empty_pool(tmp_path / "pool")
    assert again.ids() == ()
    assert again.ids(version) == source.ids()


def test_a_policy_without_images_gets_a_video_too(tmp_path: Path) -> None:
    config = replace(TINY_CONFIG, inputs="S", future_image=False)
    policy = make_policy(tmp_path / "policy", config)
    run_demo(spec_for(policy, block="zed", angle=-15.0, additions=(1,), n_seeds=1), tmp_path / "out")
    frame = VideoFrames(tmp_path / "out" / "demo.mp4", 0, 1, 20.0)[0]
    assert frame.shape[1] == 2 * TILE


def result_of(seed: int, coverage: float) -> EpisodeResult:
    steps = {key: 5 if coverage > float(key) else None for key in KEYS}
    outcome = "success" if coverage > 0.95 else "failure"
    return EpisodeResult("+30", seed, outcome, 9, {"coverage": coverage}, steps)


def stage_of(n: int, *coverages: float) -> Stage:
    results = tuple(result_of(900 + i, c) for i, c in enumerate(coverages))
    return Stage(n, results, tuple(result_of(900 + i, 0.0) for i in range(len(results))), (), None)


def test_the_table_compares_each_stage_with_the_previous_one() -> None:
    stages = [stage_of(0, 0.1, 0.9, 0.96), stage_of(10, 0.99, 0.1, 0.9)]
    assert gain(*stages, "0.85").gained == (900,)
    assert gain(*stages, "0.85").lost == (901,)
    assert gain(*stages, "0.95").lost == (902,)
    first, second = table_rows(stages)
    assert first[0] == "0 (alone)"
    assert first[1].startswith("2/3 [")
    assert first[-2:] == ["–", "–"]
    assert second[2].startswith("1/3 [")
    assert second[3].startswith("0/3 [0, ")
    assert second[-2:] == ["1 / 1", "1 / 1"]
    assert second[0] == "10"


def test_the_conclusion_reports_a_policy_worse_than_replay() -> None:
    grown = stage_of(5, 0.9, 0.1)
    stages = (stage_of(0, 0.1, 0.1), replace(grown, replay=(result_of(900, 0.99), result_of(901, 0.9))))
    text = conclusion(DemoResult(DemoSpec(n_seeds=2), ("a", "a"), {"network": 1}, 1, stages, 900))
    assert "it then stands at: past 0.85 -50 points" in text


def test_the_conclusion_has_differences_with_intervals() -> None:
    stages = (stage_of(0, 0.1, 0.1), stage_of(5, 0.99, 0.1))
    result = DemoResult(DemoSpec(n_seeds=2), ("a", "a"), {"network": 1}, 1, stages, 900)
    text = conclusion(result)
    assert re.search(r"Against replay with the same settings .* past 0\.85 \+50 points \[", text)
    assert re.search(r"past 0\.85 \+50 points \[[+-]\d+, \+\d+\] \(starts gained: 1, lost: 0\)", text)


@pytest.mark.parametrize(
    ("before", "after", "seed"),
    [
        ((0.1, 0.1, 0.1), (0.2, 0.9, 0.99), 902),  # gained at the highest threshold
        ((0.1, 0.1, 0.1), (0.2, 0.9, 0.3), 901),  # gained at the first threshold only
        ((0.1, 0.2, 0.3), (0.6, 0.5, 0.4), 900),  # none: the most improved
    ],
)
def test_the_video_shows_a_start_that_improved(
    before: tuple[float, ...], after: tuple[float, ...], seed: int
) -> None:
    assert film_seed([stage_of(0, *before), stage_of(5, *after)]) == seed


def test_the_next_commands_keep_the_policy_and_are_shell_quoted() -> None:
    commands = [command for command, _ in next_steps(DemoSpec("my policies/a; b", block="ell"), "demo/pool")]
    assert commands[0] == "recap demo --angle 17 --policy 'my policies/a; b'"
    assert "--block tee" in commands[1]
    assert "--env pusht --env.pusher triangle --env.block ell" in commands[2]
    assert f"--tasks={ANGLE:+g}" in commands[2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"additions": ()}, "additions ''"),
        ({"additions": (10, 0)}, "additions '10,0'"),
        ({"additions": (10_000,)}, "at most 2000"),
        ({"n_seeds": 0}, "0 seeds"),
        ({"n_seeds": 101}, "give 1 to 100"),
        ({"block": "teee"}, "did you mean 'tee'"),
        ({"angle": float("nan")}, "is not a number"),
    ],
)
def test_an_invalid_demo_spec_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        replace(DemoSpec(), **changes)  # type: ignore[arg-type]


def test_a_policy_without_retrieval_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    config = replace(TINY_CONFIG, inputs="S", future_image=False, retrieval=False, residual=False)
    policy = make_policy(tmp_path / "policy", config)
    with pytest.raises(InputError, match="does not retrieve"):
        run_demo(spec_for(policy), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_policy_of_another_robot_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'dualarm-small' is not for PushT: action feature"):
        run_demo(DemoSpec("dualarm-small"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_files_is_refused(shown: tuple[DemoResult, Path], tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear", "utf-8")
    with pytest.raises(RunDirectoryError, match="not empty"):
        run_demo(shown[0].spec, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]


def run(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as caught:
        main(["demo", *arguments])
    return caught.value.code


def test_the_command_prints_results_and_next_commands(
    shown: tuple[DemoResult, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    result, _ = shown
    asked: list[DemoSpec] = []

    def short(spec: DemoSpec, out: Path, workers: int, voice: object) -> DemoResult:
        asked.append(spec)
        return result

    monkeypatch.setattr("recap_apps.demo.run.run_demo", short)
    out = tmp_path / "out"
    assert (
        run("--policy", "p", "--additions", "1,2", "--seeds", "2", "--angle", "377", "--out", str(out)) == 0
    )
    assert asked == [DemoSpec("p", angle=17.0, additions=(1, 2), n_seeds=2)]
    told = capsys.readouterr().out
    assert "0/2 [0, 66]" in told
    assert str(out / "index.html") in told
    assert "recap demo --block ell" in told
    assert all(len(line) <= 80 for line in told.splitlines() if "[0, 66]" in line and "0/2" in line)


def test_the_help_shows_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    told = capsys.readouterr().out
    for value in (f"{ANGLE:g}", ",".join(map(str, ADDITIONS)), N_SEEDS):
        assert f"[default: {value}]" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--angle", "17,18"], "names 2: give one angle"),
        (["--angle", "up"], "unknown number 'up'"),
        (["--additions", "ten"], "such as 10,40"),
        (["--block", "tree"], "did you mean 'tee'"),
        (["--policy", "nowhere/at/all"], "no checkpoint in nowhere/at/all"),
    ],
)
def test_wrong_options_are_a_one_line_error(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_replay_is_run_with_the_policys_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, object]] = []

    def noted(agent: RetrievalAgent, *rest: object) -> object:
        made.append(agent_settings(agent))
        return run_trials(agent, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("recap_apps.demo.run.run_trials", noted)
    config = replace(TINY_CONFIG, inputs="S", n_action_steps=3, subtrajectories=True)
    run_demo(spec_for(make_policy(tmp_path / "policy", config), additions=(1,)), tmp_path / "out")
    policy, replay = made[-2:]
    assert replay == {key: value for key, value in policy.items() if not key.startswith("policy.")}
    assert replay["n_action_steps"] == 3
    assert replay["retrieval.subtrajectories"] is True
