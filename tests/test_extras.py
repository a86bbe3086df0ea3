"""The base install needs no torch; a missing package is a one-line error that names its extra."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import recap
from recap import extras
from recap.errors import InputError
from recap.extras import extra_of, require_extra

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
WITHOUT_TORCH = """
import sys
from importlib.abc import MetaPathFinder
class Missing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {"torch", "diffusers", "accelerate", "transformers", "numba", "cv2"}:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
sys.meta_path.insert(0, Missing())
"""


@pytest.fixture(autouse=True)
def _of_this_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uses the extras of pyproject.toml instead of those of the installed package."""
    lines = [
        f"{name} ; extra == '{extra}'"
        for extra, names in PROJECT["optional-dependencies"].items()
        for name in names
    ]
    monkeypatch.setattr(extras, "requires", lambda distribution: lines)


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("torch", "policy"),
        ("diffusers.models", "policy"),
        ("accelerate", "train"),
        ("cv2", "opencv"),
        ("mujoco.viewer", "kinematics"),
        ("gym_pusht", "pusht"),
        ("aiohttp", "serve"),
        ("no_such_module", None),
    ],
)
def test_a_missing_package_is_mapped_to_its_extra(module: str, extra: str | None) -> None:
    assert extra_of(module) == extra


def test_an_extra_with_a_missing_included_package_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_installed", lambda name: name != "torch")
    with pytest.raises(InputError, match=r"torch.*recap-robot\[train\]") as refused:
        require_extra("train", "training")
    assert refused.value.code == "not-installed"
    monkeypatch.setattr(extras, "_installed", lambda name: name != "aiohttp")
    require_extra("train", "training")


def test_the_base_install_has_no_large_dependencies() -> None:
    named = " ".join(PROJECT["dependencies"])
    assert not [name for name in ("torch", "diffusers", "numba", "opencv", "mujoco") if name in named]


def test_pools_retrieval_evaluation_and_serving_import_without_torch() -> None:
    inner = ("agent", "api", "assembly", "pool", "features", "retrieval", "evaluation", "serving")
    parts = [*(f"recap.{name}" for name in inner), "recap_hands"]
    lines = f"""
import importlib, pkgutil
for part in {parts}:
    module = importlib.import_module(part)
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), module.__name__ + "."):
        importlib.import_module(found.name)
"""
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH + lines], check=True)


def test_without_torch_loading_a_policy_is_an_error_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_installed", lambda name: name != "torch")
    with pytest.raises(InputError, match=r"recap-robot\[policy\]") as refused:
        recap.load_policy("runs/mine/best")
    assert refused.value.code == "not-installed"


def test_ctrl_c_is_deferred_until_torch_is_imported(tmp_path: Path) -> None:
    """An interrupt during torch's import can abort the process; here a fake torch module is used."""
    (tmp_path / "torch.py").write_text(
        "import signal\nsignal.raise_signal(signal.SIGINT)\nprint('loaded', flush=True)\n"
    )
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from recap.extras import load_torch\n"
        "try:\n    load_torch()\nexcept KeyboardInterrupt:\n    print('stopped')\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["loaded", "stopped"], done.stderr
