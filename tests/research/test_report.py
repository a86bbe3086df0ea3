"""The report page: it shows the values of the files, and it is accessible."""

import json
import math
import os
import re
import shlex
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from toy_report import HOSTILE, pusht, results, write_run, write_toy_report

from recap.assembly import AgentConfig
from recap.cli.evaluate import evaluate as eval_command
from recap.errors import InputError, RunDirectoryError
from recap.evaluation.run_directory import read_info
from recap.evaluation.settings import command_of
from recap.evaluation.spec import EvalSpec
from recap.evaluation.summary import compare
from recap.pictures import write_png
from recap.types import EpisodeResult
from recap_research.cli import report as command
from recap_research.published import ROWS
from recap_research.report import page as module
from recap_research.report.page import build_report
from recap_research.training_seeds import gain_of


class Reader(HTMLParser):
    """Tables by id as rows of text, and every tag with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._rows: list[list[str]] | None = None
        self._cell: list[str] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "table":
            self._rows = self.tables.setdefault(str(dict(attrs).get("id")), [])
        elif tag == "tr" and self._rows is not None:
            self._rows.append([])
        elif tag in ("td", "th"):
            self._cell = []
        elif tag == "br" and self._cell is not None:
            self._cell.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._rows is not None and self._cell is not None:
            self._rows[-1].append("".join(self._cell))
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def row(self, table: str, label: str) -> dict[str, str]:
        """The row with this label, as column -> cell."""
        head, *rows = self.tables[table]
        row = next(row for row in rows if row[0] == label)
        return dict(zip(head, row, strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report")
    write_toy_report(path)
    return path


@pytest.fixture(scope="module")
def written(folder: Path) -> dict[str, Any]:
    return {f.stem: json.loads(f.read_text("utf-8")) for f in folder.rglob("*.json") if f.stem != "config"}


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return build_report(folder)


@pytest.fixture(scope="module")
def read(page: str) -> Reader:
    return Reader(page)


LABELS = {"none": "nothing retrieved", "replay": "runs/replay", "ours": f"ours {HOSTILE}"}


@pytest.mark.parametrize("run", LABELS)
@pytest.mark.parametrize("threshold", ["0.85", "0.95"])
def test_every_rate_equals_the_one_in_the_file(folder: Path, read: Reader, run: str, threshold: str) -> None:
    summary = json.loads((folder / "runs" / run / "eval_info.json").read_text("utf-8"))["summary"]
    shown = read.row(f"success-0-{threshold}", LABELS[run])
    for angle, group in summary["by_task"].items():
        rate = group["success"][threshold]
        assert shown[f"{angle}°"].split()[-1] == f"{rate['successes']}/{rate['n']}"
        assert float(shown[f"{angle}°"].split()[0]) == pytest.approx(100 * rate["rate"], abs=0.5)
    for name in ("seen", "unseen"):
        rate = summary[name]["success"][threshold]
        low, high = map(int, re.findall(r"\[(\d+), (\d+)\]", shown[name])[0])
        assert shown[name].split()[-1] == f"{rate['successes']}/{rate['n']}"
        assert (low, high) == (math.floor(100 * rate["low"]), math.ceil(100 * rate["high"]))


def test_the_papers_numbers_are_shown_next_to_ours(read: Reader) -> None:
    paper = ROWS["ours"]
    shown = read.row("success-0-0.85", f"paper: {paper.name} {paper.where}")
    assert shown["unseen"] == "34.9 %"
    assert shown["0°"] == "28 %"
    assert not any(row[0].startswith("paper") for row in read.tables["success-0-0.95"])
    assert read.tables["attention-0"][1][-2:] == ["10 of 28", "2.1"]


def test_paired_differences_equal_those_of_compare(folder: Path, read: Reader) -> None:
    a, b = (read_info(folder / "runs" / run) for run in ("none", "ours"))
    pairs = compare(a, b).thresholds["0.85"]["unseen"]
    shown = read.row("pairs-0-0.85", f"ours {HOSTILE}, unseen")
    assert float(shown["points [95 %]"].split()[0]) == pytest.approx(100 * pairs.difference, abs=0.05)
    counts = [shown[key] for key in ("both", "only reference", "only this", "neither")]
    assert counts == [str(n) for n in (pairs.both, pairs.only_a, pairs.only_b, pairs.neither)]


def test_trainings_of_one_recipe_are_shown_together_and_individually(folder: Path, read: Reader) -> None:
    names = ("grow/0", "grow/1", "grow/2")
    files = [json.loads((folder / name / "eval_info.json").read_text("utf-8")) for name in names]
    rates = [info["summary"]["unseen"]["success"]["0.85"] for info in files]
    shown = read.row("success-1-0.85", "grown 3 trainings")
    counts = f"{sum(rate['successes'] for rate in rates)}/{sum(rate['n'] for rate in rates)}"
    told, each = shown["unseen"].split(f" {counts} ")
    mean = 100 * sum(rate["rate"] for rate in rates) / 3
    assert float(told.split()[0]) == pytest.approx(mean, abs=0.06)
    assert [float(value) for value in each.split(", ")] == pytest.approx(
        [100 * rate["rate"] for rate in rates], abs=0.06
    )
    at_zero = [info["summary"]["by_task"]["0"]["success"]["0.85"]["successes"] for info in files]
    assert shown["0°"].split()[-1].startswith(f"{sum(at_zero)}/")
    assert "nothing retrieved" in {row[0] for row in read.tables["success-1-0.85"]}, "trained once"


def test_a_gain_over_several_trainings_is_the_difference_of_their_means(folder: Path, read: Reader) -> None:
    grown = [read_info(folder / f"grow/{i}") for i in range(3)]
    gain = gain_of(grown, [read_info(folder / "runs/none")], "unseen", "0.85")
    assert gain is not None
    shown = read.row("pairs-1-0.85", "grown, unseen")
    assert shown["points [95 %]"] == str(gain)
    assert "both" not in shown, "trainings of two recipes are not paired"


def test_a_sweep_shows_its_runs_in_order(folder: Path, read: Reader) -> None:
    head, *rows = read.tables["sweep-0"]
    assert [row[0] for row in rows] == ["0", "10", "100"]
    for row in rows:
        info = json.loads((folder / "size" / row[0] / "eval_info.json").read_text("utf-8"))
        rate = info["summary"]["unseen"]["success"]["0.85"]
        assert row[head.index("unseen > 0.85")].endswith(f" {rate['successes']}/{rate['n']}")
    assert [row[head.index("abstained")] for row in rows] == ["0.0 %", "5.0 %", "50.0 %"]


def test_a_growing_pool_has_a_panel_for_each_snapshot(page: str, read: Reader) -> None:
    assert [row[0] for row in read.tables["progression-0-0.85"]][1:] == [
        "nothing retrieved",
        "paper: Cosmos Policy appendix A, table of baselines",
        "two goals",
        "grow/1",
        "grow/2",
    ]
    section = page.split("A growing pool</h2>")[1].split("</figure>")[0]
    assert section.count("<svg") == 4
    assert section.count("var(--grey)") >= 12  # the previous panel, under each later one


def test_analyses_show_the_values_of_their_files(read: Reader, written: dict[str, Any]) -> None:
    peak = written["attention"]["roi"]["frame>t_block"]["peak"]
    shown = read.row("attention-0", "present view on block now")
    assert shown["peak layer"] == f"{peak['layer']} of 6"
    assert shown["ratio [95 %]"].startswith(f"{peak['ratio']:.2f} ")
    assert shown["stands out"] == "yes"
    for row in written["masking"]["rows"]:
        shown = read.row("masking-0", row["name"])
        for subset in ("successes", "failures"):
            told = f"{row[subset]['successes']}/{row[subset]['n']}"
            assert shown[f"former {subset}"].split()[-1] == told
    failed = written["failures"]
    assert read.row("clusters-0", "here")["moves"] == str(failed["total"]["moves"])
    every = failed["attention"]["anchoring"]["angles"]["all"]
    shown = read.row("anchoring-0", "all")
    assert float(shown["success"]) == pytest.approx(every["success"], rel=0.01)
    assert shown["failure − success [95 %]"].startswith(f"{every['difference']:+.2f} ")
    assert read.row("commit-0", "0°")["paper: success / failure / difference"] == "2.99 / 1.97 / -1.02"
    assert read.row("oracle-0", "moves")["best match"] == "3.25"
    assert read.row("check-0", "8")["corrected / still [95 %]"] == "0.50 [0.40, 0.60]"


def test_every_figure_states_its_command_pool_and_seeds(page: str) -> None:
    for figure in page.split("<figure>")[1:]:
        source = figure.split("</figure>")[0].split('<details class="from">')[-1]
        keys = re.findall("<dt>([^<]+)</dt>", source)
        assert {"command", "pool"} <= set(keys), figure[-300:]
        assert "seeds" in keys or "target" in keys
    section = page.split("Baselines</h2>")[1].split("</section>")[0]
    assert "recap eval pusht-nano --env pusht --env.pusher triangle --matching none" in section
    assert "--tasks=-45,-30,0,+30,+45 --seeds 500:510" in section
    assert "version 3, 900 demonstrations" in section
    assert "<code>0123456789ab</code>" in section
    assert "not recorded" in section  # for the run without a record


def test_strings_of_the_data_are_escaped(page: str, read: Reader) -> None:
    assert not [tag for tag, _ in read.tags if tag == "script"]
    assert "<script" not in page
    assert page.count("&lt;script&gt;") > 5


def test_the_page_loads_no_other_files(read: Reader, page: str) -> None:
    for _, attributes in read.tags:
        for name in ("src", "href", "poster"):
            address = attributes.get(name)
            assert address is None or address.startswith(("data:", "#")), address
    assert "@import" not in page
    assert "url(http" not in page


def test_the_page_is_accessible_to_screen_readers(read: Reader) -> None:
    tags = [tag for tag, _ in read.tags]
    assert tags.count("h1") == tags.count("main") == tags.count("nav") == 1
    assert dict(read.tags[[t for t, _ in read.tags].index("html")][1])["lang"] == "en"
    for tag, attributes in read.tags:
        if tag == "svg" and attributes.get("aria-hidden") != "true":
            assert attributes["role"] == "img"
            assert len(attributes["aria-label"] or "") > 20
        if tag == "img":
            assert attributes["alt"]
        if tag == "video":
            assert attributes["aria-label"]
        if tag == "th":
            assert attributes["scope"] in ("row", "col")
    headings = [int(t[1]) for t in tags if re.fullmatch(r"h\d", t)]
    assert all(b <= a + 1 for a, b in pairwise(headings))


def test_the_page_embeds_the_recorded_videos_with_failures_first(folder: Path, page: str) -> None:
    info = json.loads((folder / "runs/ours/eval_info.json").read_text("utf-8"))
    told = {(e["task"], e["seed"]): e for e in info["episodes"]}
    section = page.split("Episodes on film</h2>")[1].split("</section>")[0]
    figures = section.split("<figure>")[1:]
    outcomes = []
    for one in figures:
        words = unescape(one.split("<figcaption>")[1].split("</figcaption>")[0])
        angle, seed, outcome, steps, best = re.findall(
            r"^Goal (\S+)°, seed (\d+): (\w+) after (\d+) steps, best coverage ([\d.]+)$", words
        )[0]
        entry = told[angle, int(seed)]
        assert (outcome, int(steps)) == (entry["outcome"], entry["steps"])
        assert float(best) == pytest.approx(entry["metrics"]["coverage"], abs=0.005)
        for kind, end in (("video/mp4", "mp4"), ("image/png", "png")):
            shown = re.findall(f'src="data:{kind};base64,([^"]+)"', one)
            file = folder / f"runs/ours/videos/{angle}_{seed}_{outcome}.{end}"
            assert [b64decode(text) for text in shown] == [file.read_bytes()]
        assert f"--tasks={angle} --seeds {seed} --record all</code>" in one
        outcomes.append(outcome)
    assert outcomes == ["failure"] * 4 + ["success"] * 2
    assert "Left out to keep the page small: 4 films" in section


def test_videos_above_the_size_limit_are_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILM_BYTES", 500)
    small = build_report(folder)
    assert "data:video/mp4" not in small
    assert "Left out to keep the page small: 10 films" in small


def test_a_video_of_a_named_task_has_the_task_in_its_caption(tmp_path: Path) -> None:
    spec = EvalSpec(AgentConfig(), "dualarm", tasks=("lift_pot",), seeds=(500,), pool="made")
    done = EpisodeResult("lift_pot", 500, "success", 80, {"success": 1.0}, {"0.5": 80})
    write_run(tmp_path / "arms", spec, [done])
    write_png(tmp_path / "arms/videos/lift_pot_500_success.png", np.zeros((8, 8, 3), np.uint8))
    page = build_report(tmp_path)
    assert "<figcaption>Lift pot, seed 500: success after 80 steps</figcaption>" in page
    assert "--tasks=lift_pot --seeds 500 --record all" in page


def test_without_report_json_all_runs_are_shown(tmp_path: Path) -> None:
    spec = pusht("replay", tasks=("0",), seeds=(500, 501))
    for name in ("a", "b/c"):
        write_run(tmp_path / name, spec, results(spec, 0.5, 0))
    read = Reader(build_report(tmp_path))
    assert [row[0] for row in read.tables["success-0-0.85"]][1:] == ["a", "b/c"]


def test_several_folders_make_one_page(folder: Path, tmp_path: Path) -> None:
    spec = pusht("replay", tasks=("0",), seeds=(500, 501))
    write_run(tmp_path / "other" / "a", spec, results(spec, 0.5, 0))
    page = build_report(tmp_path / "other", folder, folder, title="Both & all")
    assert "<h1>Both &amp; all</h1>" in page
    read = Reader(page)
    assert read.tables["success-0-0.85"][1][0] == "a", "in the given order"
    assert read.tables["success-1-0.85"] == Reader(build_report(folder)).tables["success-0-0.85"]
    assert read.tables["masking-0"] == read.tables["masking-1"]
    ids = re.findall(r'<(?!pattern)[^>]* id="([^"]+)"', page)  # every chart defines the same pattern
    assert len(ids) == len(set(ids))


def test_invalid_folders_and_manifests_are_errors(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="no directory"):
        build_report(tmp_path / "nowhere")
    with pytest.raises(RunDirectoryError, match="recap eval"):
        build_report(tmp_path)
    (tmp_path / "check.json").write_text("{}", "utf-8")
    with pytest.raises(RunDirectoryError, match="no analysis"):
        build_report(tmp_path)
    (tmp_path / "check.json").unlink()
    (tmp_path / "checkpoint.json").write_text("{}", "utf-8")  # no analysis, and not named like one
    (tmp_path / "other.json").write_text("no JSON at all", "utf-8")  # an unrelated file
    spec = pusht("replay", tasks=("0",), seeds=(500,))
    write_run(tmp_path / "one", spec, results(spec, 0.5, 0))
    for manifest, words in (
        ({"parst": []}, "did you mean 'parts'"),
        ({"parts": [{"title": "x", "runs": ["on"]}]}, "did you mean 'one'"),
        ({"parts": [{"runs": ["one"]}]}, "lacks 'title'"),
        ({"parts": [{"title": "x", "runs": ["one"], "families": [{"runs": ["one"]}]}]}, "lacks 'label'"),
        ({"parts": ["one"]}, "no object with a title"),
        ({"runs": {"one": {"paper": "our"}}}, "did you mean 'ours'"),
    ):
        (tmp_path / "report.json").write_text(json.dumps(manifest), "utf-8")
        with pytest.raises(InputError, match=words):
            build_report(tmp_path)


def test_recap_report_writes_the_page(folder: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(command, [str(folder), "--out", str(tmp_path / "new" / "page.html")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "new" / "page.html").read_text("utf-8").startswith("<!doctype html>")


def test_the_command_of_a_spec_parses_to_the_same_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = AgentConfig(
        "pusht-nano",
        subtrajectories=False,
        residual=False,
        temperature=0.25,
        min_confidence=0.05,
        reaction="stop",
        mask="sham@2+3/1",
        noise_seed=2,
        residual_halflife=12.5,
        n_action_steps=3,
        n_candidates=20,
    )
    spec = EvalSpec(
        agent,
        "pusht",
        {"pusher": "triangle", "block": "ell"},
        tasks=("-30", "+7.5"),
        seeds=(500, 502),
        pose_noise=(4.0, 2.0),
    )
    other = spec.with_agent(subtrajectories=True, residual=True)
    replay = spec.with_agent(policy="replay", retrieval="contact", mask=None, temperature=None)
    for wanted in (spec, replace(other, seeds=tuple(range(42, 92))), replay):
        seen: list[EvalSpec] = []

        def catch(given: EvalSpec, *_: object, seen: list[EvalSpec] = seen, **__: object) -> None:
            seen.append(given)
            raise KeyboardInterrupt

        monkeypatch.setattr("recap.evaluation.runner.evaluate", catch)
        CliRunner().invoke(eval_command, shlex.split(command_of(wanted))[2:])
        assert seen == [wanted]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = Path("/usr/bin/chromium")
    if not chromium.exists():
        told = "no browser to look at the page with: make system installs the Debian package chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(told)
        pytest.skip(told)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=str(chromium), args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (375, "dark")])
def test_the_page_fits_the_window_and_makes_no_requests(
    browser: Any, page: str, tmp_path: Path, width: int, scheme: str
) -> None:
    file = tmp_path / "page.html"
    file.write_text(page, "utf-8")
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    tab = context.new_page()
    asked: list[str] = []
    said: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("console", lambda message: said.append(message.text))
    tab.goto(file.as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") <= width  # wide tables scroll by themselves
    shade = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", shade)[:3])) < 384) == (scheme == "dark")
    summary = tab.locator("details.from summary").first
    summary.click()
    assert tab.locator("details.from dl").first.is_visible()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert said == []
    film = tab.locator("video").first
    film.scroll_into_view_if_needed()
    assert film.evaluate("film => film.readyState") == 0, "a video is loaded when it is played"
    film.evaluate("film => film.play().then(() => film.pause())")
    tab.wait_for_function("document.querySelector('video').readyState >= 2")
    assert film.evaluate("film => film.duration") == pytest.approx(2.0, abs=0.05)
    film.evaluate("film => new Promise(done => { film.onseeked = done; film.currentTime = 1.5; })")
    assert film.evaluate("film => [film.currentTime, film.error, film.videoWidth]") == [1.5, None, 96]
    context.close()


def test_settings_that_differ_are_shown_above_the_results(tmp_path: Path) -> None:
    spec = pusht("pusht-small", {"pusher": "triangle"}, tasks=("0", "+45"), seeds=(500, 501))
    of_replay = {"n_action_steps": 8, "retrieval": "pusht-contact", "retrieval.subtrajectories": False}
    of_policy = {**of_replay, "retrieval.subtrajectories": True, "policy.residual": True}
    same = {**of_replay, "retrieval.subtrajectories": True}
    for name, agent, settings in (
        ("plain", "replay", of_replay),
        ("same", "replay", same),
        ("ours", "pusht-small", of_policy),
    ):
        one = spec.with_agent(policy=agent)
        write_run(tmp_path / name, one, results(one, 0.5, 0), settings=settings)
    parts = [{"title": "Three", "runs": ["plain", "same", "ours"]}, {"title": "One", "runs": ["same"]}]
    (tmp_path / "report.json").write_text(json.dumps({"parts": parts}), "utf-8")
    text = build_report(tmp_path)
    read = Reader(text)
    assert read.row("settings-0", "retrieval.subtrajectories") == {
        "setting": "retrieval.subtrajectories",
        "plain": "no",
        "same": "yes",
        "ours": "yes",
    }
    assert read.row("settings-0", "policy.residual")["plain"] == "–"
    assert text.index('id="settings-0"') < text.index('id="success-0-0.85"')
    assert "settings-1" not in read.tables, "a part with one row has no settings table"


def test_rows_that_differ_only_in_the_agent_are_noted(tmp_path: Path) -> None:
    spec = pusht("replay", tasks=("0", "+45"), seeds=(500, 501))
    for name in ("a", "b"):
        write_run(tmp_path / name, spec, results(spec, 0.5, 0), settings={"n_action_steps": 8})
    assert "rows differ only in the agent" in build_report(tmp_path)
    write_run(tmp_path / "c", spec, results(spec, 0.5, 0))
    text = build_report(tmp_path)
    assert "Runs whose agent settings were not recorded: c." in text
    assert "rows differ only in the agent" not in text
