"""The command `recap studio`."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner
from foreign import dataset, demonstrations, pool

from recap.cli import cli
from recap.errors import InputError, RecapError
from recap.pool.store import Pool
from recap_apps.studio.cli import open_or_create
from recap_apps.studio.serving import studio_spec


def test_studio_creates_a_scratch_pool_prints_its_url_and_stops_on_ctrl_c(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "recap",
        "studio",
        "--policy",
        "replay",
        "--port",
        "0",
        "--no-browser",
    ]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline().strip() for _ in range(4)]
        url = next(line.split()[1] for line in lines if line.startswith("Studio: "))
        page = urllib.request.urlopen(url).read().decode()
        child.send_signal(signal.SIGINT)
        rest = child.stdout.read()
        assert child.wait(20) == 0
    assert url.startswith("http://127.0.0.1:")
    assert "<title>ReCAP studio</title>" in page
    assert "version 1, 0 demonstrations" in " ".join(lines)
    assert "Stopped." in rest
    assert len(Pool.open(tmp_path / "recap" / "studio-pool")) == 0


def test_an_existing_pool_is_opened_and_other_paths_are_refused(tmp_path: Path) -> None:
    Pool.create(tmp_path / "mine").tag("kept")
    open_or_create(str(tmp_path / "mine"))
    assert Pool.open(tmp_path / "mine").tags() == {"kept": 1}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    for uri in (str(tmp_path / "other"), "pusht-9x100", "snapshot.safetensors"):
        with pytest.raises(RecapError):
            open_or_create(uri)


@pytest.mark.parametrize(
    ("policy", "retrieval", "name", "options"),
    [
        ("replay", None, "pusht-object", {}),
        ("replay", "world", "pusht-world", {}),
        ("replay", "contact", "pusht-contact", {"pusher": "triangle"}),
        ("pusht-nano", None, "pusht-contact", {"pusher": "triangle"}),
        ("pusht-nano", "pusht-contact", "pusht-contact", {"pusher": "triangle"}),
    ],
)
def test_policy_and_retrieval_options_set_the_served_retrieval(
    policy: str, retrieval: str | None, name: str, options: dict[str, str]
) -> None:
    spec = studio_spec("pool", policy, retrieval)
    assert (spec.agent.policy, spec.agent.retrieval, spec.agent.reaction) == (policy, name, "hold")
    assert spec.options == options
    assert spec.suite is not None
    assert spec.suite.name == "pusht"


@pytest.mark.parametrize(
    ("policy", "retrieval", "words"),
    [
        ("pusht-nan", None, "did you mean 'pusht-nano'"),
        ("expert", None, "unknown policy 'expert'"),
        ("dualarm-small", None, "'dualarm-small' is not for PushT: action feature"),
        ("pusht-nano", "object", "leave --retrieval out"),
        ("replay", "dualarm-parts", "unknown retrieval 'dualarm-parts'"),
    ],
)
def test_unsuitable_policies_and_retrievals_are_refused(
    policy: str, retrieval: str | None, words: str
) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        studio_spec("pool", policy, retrieval)


def test_a_dataset_is_opened_read_only_by_its_path(tmp_path: Path) -> None:
    place = dataset(tmp_path / "arm", demonstrations()[:2])
    command = [sys.executable, "-m", "recap", "studio", str(place), "--port", "0", "--no-browser"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline().strip() for _ in range(3)]
        url = next(line.split()[1] for line in lines if line.startswith("Studio: "))
        page = urllib.request.urlopen(url).read().decode()
        child.send_signal(signal.SIGINT)
        assert child.wait(20) == 0
    assert "2 demonstrations; it is not changed" in lines[0]
    assert "/studio/explore.js" in page


@pytest.mark.parametrize(
    "words",
    [
        ["nothing"],
        ["POOL", "--pool", "other"],
        ["--write"],
        ["--into", "POOL"],
        ["POOL", "--into", "POOL"],
        ["POOL", "--retrieval", "nothing.yaml"],
        ["POOL", "--robot", "nothing.yaml"],
    ],
)
def test_options_that_do_not_fit_together_are_errors(tmp_path: Path, words: list[str]) -> None:
    place = str(pool(tmp_path / "pool", demonstrations()[:1]))
    given = [place if word == "POOL" else word for word in words]
    result = CliRunner().invoke(cli, ["studio", *given, "--port", "0", "--no-browser"])
    assert isinstance(result.exception, RecapError) or result.exit_code == 2
