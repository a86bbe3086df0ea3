"""The wheels, installed outside the repository, and the Dockerfile."""

import email
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# Scripts for the base install: record a dataset, first episode of a pool, one replay step, a server.
RECORD = """
from pathlib import Path
import numpy as np, recap
from recap.pool.lerobot import assemble, stage_episode

for i in range(4):
    rng = np.random.default_rng(i)
    path = np.cumsum(rng.normal(0, 0.01, (20, 3)), axis=0).astype(np.float32)
    episode = recap.Episode(
        id=f"arm/{i}", scene_id=f"arm/{i}", task="reach", embodiment="arm", fps=10.0,
        timestamps=np.arange(20) / 10, proprio=path, actions=path + 0.01,
        images={"front": [rng.integers(0, 255, (48, 64, 3), np.uint8) for _ in range(20)]},
    )
    stage_episode(Path(".stage"), i, episode)
assemble(Path(".stage"), 4, Path("data/robot"))
"""
FIRST = "import recap; print(recap.open_pool('pools/mine').view().episode_ids[0])"
REPLAY = """
import numpy as np, recap
agent = recap.Agent(None, "pools/mine")
agent.reset(seed=1)
image = np.zeros((48, 64, 3), np.uint8)
print(*agent.act({"state": np.zeros(3), "images": {"front": image}}))
"""
SERVE = """
import re, subprocess
import numpy as np
from recap_client.client import PolicyClient

command = ["venv/bin/recap", "serve", "replay", "--pool", "pools/mine", "--port", "0"]
server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
try:
    port = next(found[1] for line in server.stdout if (found := re.search(r"ws://127.0.0.1:(\\d+)", line)))
    client = PolicyClient(f"ws://127.0.0.1:{port}")
    seen = {"observation/state": np.zeros(3), "observation/images/front": np.zeros((48, 64, 3), np.uint8)}
    assert client.infer(seen)["actions"].shape[1] == 3
finally:
    server.kill()
"""
DISTRIBUTIONS = {"recap_robot", "recap_client", "lerobot_policy_recap", "lerobot_robot_recap_sim"}


def example() -> str:
    """The first Python block of the README."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions as (keyword, arguments), with continued lines joined."""
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def test_the_dockerfile_copies_existing_files_and_installs_known_packages() -> None:
    commands = [part.strip() for word, rest in instructions() if word == "RUN" for part in rest.split("&&")]
    for _, rest in (row for row in instructions() if row[0] == "COPY"):
        *sources, target = shlex.split(rest)
        assert target.startswith("/build/")
        assert all((ROOT / source).exists() for source in sources), rest
    packages = next(shlex.split(line) for line in commands if line.startswith("apt-get install"))
    known = re.search(r"^SYSTEM_PACKAGES := (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert known is not None
    named = {word for word in packages[2:] if not word.startswith("-")}
    assert named == set(known[1].split())
    extras = re.findall(r"/build\[([\w,]+)\]", " ".join(commands))
    assert extras
    assert set(extras[0].split(",")) <= set(PROJECT["optional-dependencies"])
    entry = next(rest for word, rest in instructions() if word == "ENTRYPOINT")
    assert entry == '["recap"]'
    assert "recap" in PROJECT["scripts"]
    assert next(rest for word, rest in instructions() if word == "USER") != "root"


def test_the_client_is_a_separate_distribution() -> None:
    assert any(name.startswith("recap-client") for name in PROJECT["dependencies"])
    assert "recap-client" not in PROJECT["scripts"]


class Clean:
    """A virtual environment outside the repository that installs the built wheels without our constraints."""

    def __init__(self, folder: Path, dist: Path) -> None:
        self.folder, self.dist = folder, dist
        folder.mkdir()
        self.run(sys.executable, "-m", "venv", "venv")

    def run(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Runs a command there; its exit code must be `code`."""
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(
            words, capture_output=True, text=True, env=environment, cwd=self.folder, timeout=1800
        )
        assert done.returncode == code, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"
        return done

    def recap(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.run("venv/bin/recap", *words, code=code)

    def install(self, *names: str) -> None:
        pip = ("venv/bin/python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
        self.run(*pip, "--find-links", str(self.dist), *names)

    def names(self) -> set[str]:
        """The names of the installed distributions."""
        listed = self.run("venv/bin/python", "-m", "pip", "list", "--format=freeze").stdout
        return {line.partition("==")[0].lower() for line in listed.splitlines()}

    def mebibytes(self) -> float:
        """The size of all installed packages except pip, as `du -m --apparent-size` counts."""
        (site,) = (self.folder / "venv" / "lib").glob("python*/site-packages")
        parts = [part for part in site.iterdir() if not part.name.startswith(("pip", "setuptools"))]
        files = [file for part in parts for file in (part.rglob("*") if part.is_dir() else [part])]
        return sum(file.stat().st_size for file in files if file.is_file()) / 2**20


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels that `make dist` builds."""
    folder = tmp_path_factory.mktemp("wheels") / "dist"
    command = ["make", "-C", str(ROOT), "dist", f"DIST={folder}", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.long
def test_every_wheel_contains_its_package_and_py_typed(dist: Path) -> None:
    wheels = {file.name.partition("-")[0]: file for file in dist.glob("*.whl")}
    assert set(wheels) == DISTRIBUTIONS
    for name, file in wheels.items():
        inside = zipfile.ZipFile(file).namelist()
        assert any(path.endswith("py.typed") for path in inside), name
        assert name == "recap_client" or not any(path.startswith("recap_client/") for path in inside)
        assert not any(path.startswith(("tests/", "research/", "recap_research/")) for path in inside)


def description(wheel: Path) -> str:
    """The long description that a package index shows."""
    inside = zipfile.ZipFile(wheel)
    (name,) = (path for path in inside.namelist() if path.endswith(".dist-info/METADATA"))
    message = email.message_from_bytes(inside.read(name))
    assert message["Description-Content-Type"] == "text/markdown"
    text: bytes = message.get_payload(decode=True)
    return text.decode()


@pytest.mark.long
def test_links_of_the_long_description_are_absolute_and_point_to_existing_files(
    tmp_path: Path, dist: Path
) -> None:
    """Links point into the repository if the project has a URL; otherwise only their text is kept."""
    (wheel,) = dist.glob("recap_robot-*.whl")
    text = description(wheel)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert "# ReCAP" in text
    assert "How it works" in text
    assert "](https://github.com/huggingface/lerobot)" in text
    assert "[How to]" not in text
    known = "Repository" in PROJECT.get("urls", {})
    assert known or "The frozen triangle fails" in text  # the alt text of the first image
    assert [link for link in links if not link.startswith("https://")] == []
    # The same for a project with a repository URL; one folder of its code is enough.
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    packages = re.compile(r"^packages = \[.*?^\]", re.MULTILINE | re.DOTALL)
    project = packages.sub('packages = ["src/recap"]', project)
    if not known:
        project += '\n[project.urls]\nRepository = "https://example.org/recap"\n'
    for name in ("README.md", "LICENSE", "hatch_build.py", "src/recap/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "pyproject.toml").write_text(project, "utf-8")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps")
    subprocess.run([*pip, "--wheel-dir", str(tmp_path / "dist"), str(tmp_path)], check=True, timeout=600)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    text = description(wheel)
    assert "/raw/HEAD/docs/images/before-after.gif)" in text
    assert "/blob/HEAD/docs/start/install.md)" in text
    assert all(link.startswith("https://") for link in re.findall(r"\]\(([^)\s]+)\)", text))
    for target in re.findall(r"/HEAD/([^)#\s]+)", text):
        assert (ROOT / target).exists(), target


@pytest.mark.long
def test_the_base_install_has_pools_retrieval_replay_and_serving_without_torch(
    tmp_path: Path, dist: Path
) -> None:
    clean = Clean(tmp_path / "base", dist)
    clean.install("recap-robot")
    assert not clean.names() & {"torch", "diffusers", "numba", "opencv-python", "gymnasium", "aiohttp"}
    assert clean.mebibytes() <= 700
    assert clean.recap("--version").stdout == f"recap, version {_version()}\n"
    clean.run("venv/bin/python", "-c", "import recap")
    (clean.folder / "record.py").write_text(RECORD, "utf-8")
    clean.run("venv/bin/python", "record.py")
    clean.recap("init", "data/robot", "--out", "robot.yaml")
    clean.recap("pool", "create", "pools/mine", "--robot", "robot.yaml")
    clean.recap("pool", "add", "pools/mine", "data/robot")
    assert "4 " in clean.recap("pool", "ls", "pools/mine").stdout
    episode = clean.run("venv/bin/python", "-c", FIRST).stdout.strip()
    clean.recap("retrieve", "pools/mine", "--at", f"{episode}:5", "--explain", "--out", "why.png")
    assert (clean.folder / "why.png").stat().st_size > 0
    clean.recap("pool", "export", "pools/mine", "exported")
    assert len(clean.run("venv/bin/python", "-c", REPLAY).stdout.split()) == 3
    words = ("--target", "data/robot", "--pool", "pools/mine", "--out", "runs/mine")
    refused = clean.recap("train", "robot.yaml", *words, code=2).stderr
    assert "recap-robot[train]" in refused
    assert refused.count("\n") == 1
    refused = clean.recap("serve", "pusht-small", "--pool", "pools/mine", code=2).stderr.splitlines()
    assert "recap-robot[" in refused[-1]
    assert clean.recap("serve", "replay", "--pool", "pools/mine", code=2).stderr.endswith(
        "pip install 'recap-robot[serve]'\n"
    )
    clean.install("recap-robot[serve]")
    assert "torch" not in clean.names()
    clean.run("venv/bin/python", "-c", SERVE)


@pytest.mark.long
def test_the_readmes_python_example_runs_with_its_extras(tmp_path: Path, dist: Path) -> None:
    """Installs torch's CPU build if the index has one."""
    clean = Clean(tmp_path / "pusht", dist)
    pins = (ROOT / "constraints.txt").read_text("utf-8")
    torch = re.search(r"^torch==(\S+)$", pins, re.MULTILINE)
    assert torch is not None
    with suppress(AssertionError):
        clean.install(f"torch=={torch[1]}+cpu")
    clean.install("recap-robot[policy,pusht]")
    (clean.folder / "example.py").write_text(example(), "utf-8")
    coverage = float(clean.run("venv/bin/python", "example.py").stdout.split()[0])
    assert coverage > 0.95


def _version() -> str:
    found = re.search(r'__version__ = "(.*)"', (ROOT / "src/recap/__init__.py").read_text("utf-8"))
    assert found is not None
    return found[1]
