"""What is installed outside the repository: wheels, and the image of the Dockerfile."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
DISTRIBUTIONS = {"recap_robot", "recap_client", "lerobot_policy_recap", "lerobot_robot_recap_sim"}


def example() -> str:
    """The first Python block of the README."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile: word and rest, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def test_the_image_copies_what_there_is_and_installs_what_the_project_has() -> None:
    commands = [part.strip() for word, rest in instructions() if word == "RUN" for part in rest.split("&&")]
    for _, rest in (row for row in instructions() if row[0] == "COPY"):
        *sources, target = shlex.split(rest)
        assert target.startswith("/build/")
        assert all((ROOT / source).exists() for source in sources), rest
    packages = next(shlex.split(line) for line in commands if line.startswith("apt-get install"))
    known = re.search(r"^SYSTEM_PACKAGES := (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert known is not None
    named = {word for word in packages[2:] if not word.startswith("-")}
    assert named == set(known[1].split()) - {"chromium"}
    extras = re.findall(r"/build\[([\w,]+)\]", " ".join(commands))
    assert extras
    assert set(extras[0].split(",")) <= set(PROJECT["optional-dependencies"])
    entry = next(rest for word, rest in instructions() if word == "ENTRYPOINT")
    assert entry == '["recap"]'
    assert "recap" in PROJECT["scripts"]
    assert next(rest for word, rest in instructions() if word == "USER") != "root"


def test_the_client_is_a_distribution_of_its_own() -> None:
    assert any(name.startswith("recap-client") for name in PROJECT["dependencies"])
    assert "recap-client" not in PROJECT["scripts"]


@pytest.mark.long
def test_the_wheels_work_in_a_clean_environment_outside_the_repository(tmp_path: Path) -> None:
    """Without our constraints: what the index has today. torch is its CPU build where there is one."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(*words: str, check: bool = True) -> str:
        done = subprocess.run(
            words, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=1800
        )
        assert not check or done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    dist = tmp_path / "dist"
    run("make", "-C", str(ROOT), "dist", f"DIST={dist}", f"PYTHON={sys.executable}")
    wheels = {file.name.partition("-")[0]: file for file in dist.glob("*.whl")}
    assert set(wheels) == DISTRIBUTIONS
    for name, file in wheels.items():
        inside = zipfile.ZipFile(file).namelist()
        assert any(path.endswith("py.typed") for path in inside), name
        assert name == "recap_client" or not any(path.startswith("recap_client/") for path in inside)
        assert not any(path.startswith(("tests/", "research/", "recap_research/")) for path in inside)

    run(sys.executable, "-m", "venv", "venv")
    pip = ("venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--find-links", str(dist))
    pins = (ROOT / "constraints.txt").read_text("utf-8")
    torch = re.search(r"^torch==(\S+)$", pins, re.MULTILINE)
    assert torch is not None
    run(*pip, f"torch=={torch[1]}+cpu", check=False)
    run(*pip, "recap-robot[pusht]")
    assert run("venv/bin/recap", "--version") == f"recap, version {_version()}\n"
    (tmp_path / "example.py").write_text(example(), "utf-8")
    coverage = float(run("venv/bin/python", "example.py").split()[0])
    assert coverage > 0.95


def _version() -> str:
    found = re.search(r'__version__ = "(.*)"', (ROOT / "src/recap/__init__.py").read_text("utf-8"))
    assert found is not None
    return found[1]
