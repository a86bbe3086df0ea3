"""The allowed imports between packages and folders, and words that the library must not use."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "recap"
PACKAGES = {
    "recap": SOURCE,
    "recap_client": ROOT / "client" / "recap_client",
    "recap_worlds": ROOT / "src" / "recap_worlds",
    "recap_apps": ROOT / "apps" / "recap_apps",
    "recap_hands": ROOT / "apps" / "recap_hands",
    "recap_pi0": ROOT / "integrations" / "recap_pi0",
    "recap_robotwin": ROOT / "integrations" / "recap_robotwin",
    "recap_research": ROOT / "research" / "recap_research",
    "lerobot_policy_recap": ROOT / "integrations" / "lerobot_policy_recap",
    "lerobot_robot_recap_sim": ROOT / "integrations" / "lerobot_robot_recap_sim",
}
# Our packages that each package may import, besides itself.
MAY_IMPORT = {
    "recap_client": set(),
    "recap": {"recap_client"},
    "recap_hands": {"recap"},
    "recap_pi0": {"recap"},
    "recap_worlds": {"recap", "recap_client", "recap_hands", "recap_pi0"},
    "recap_apps": {"recap", "recap_client", "recap_hands", "recap_worlds"},
    "recap_robotwin": {"recap", "recap_client", "recap_worlds"},
    "recap_research": {"recap", "recap_client", "recap_worlds", "recap_apps", "recap_hands", "recap_pi0"},
    "lerobot_policy_recap": {"recap_client"},
    "lerobot_robot_recap_sim": set(),
}

# Within the library: the modules and folders that each part may import at run time, besides itself.
BASE = {"types", "errors", "config", "lazy", "geometry", "geometry3", "compiled", "robot", "run_directory"}
BASE |= {"body", "robot_model", "chain", "kinematics", "gate"}
BASE |= {"workers", "on_ray", "video", "pictures", "suites", "agent_config", "sums", "usage", "extras"}
ALLOWED = {
    "types": set(),
    "errors": set(),
    "compiled": set(),
    "lazy": set(),
    "config": {"errors"},
    "geometry": {"types"},
    "geometry3": {"types", "errors"},
    "body": {"types", "errors", "geometry", "geometry3"},
    "robot": {"types", "errors", "config", "geometry3", "robot_model", "body"},
    "robot_model": {"errors"},
    "chain": {"types", "errors", "robot_model"},
    "kinematics": {"types", "errors", "geometry3", "body", "robot", "chain"},
    "gate": {"errors", "body", "robot", "agent_config"},
    "suites": {"types", "errors"},
    "run_directory": {"errors"},
    "sums": {"errors", "run_directory"},
    "extras": {"errors"},
    "usage": {"errors", "types"},
    "workers": {"errors"},
    "on_ray": {"errors", "workers"},
    "agent_config": {"errors"},
    "video": {"types", "errors", "lazy", "run_directory"},
    "pictures": {"types", "errors"},
    "robot_draft": BASE | {"pool"},
    "robot_draft_text": BASE | {"robot_draft"},
    "features": BASE,
    "pool": BASE,
    "retrieval": BASE | {"pool", "features"},
    "policies": BASE | {"features"},
    "latents": BASE | {"pool", "policies"},
    "compatible": BASE | {"pool"},
    "prediction": BASE | {"pool", "latents"},
    "running_episode": BASE | {"retrieval"},
    "assembly": BASE | {"pool", "features", "retrieval", "policies", "agent"},
    "agent": BASE | {"pool", "retrieval", "assembly", "compatible", "prediction", "running_episode"},
    "training": BASE | {"pool", "features", "retrieval", "policies", "compatible"},
    "evaluation": BASE
    | {"pool", "features", "retrieval", "policies", "agent", "running_episode", "assembly", "compatible"},
    "serving": BASE
    | {"pool", "features", "retrieval", "policies", "agent", "running_episode", "assembly", "compatible"},
    "api": BASE | {"pool", "features", "policies", "assembly", "evaluation", "training"},
    "testing": BASE | {"features", "serving"},
    "cli": BASE
    | {
        "robot_draft",
        "robot_draft_text",
        "pool",
        "features",
        "retrieval",
        "policies",
        "agent",
        "assembly",
        "compatible",
        "training",
        "evaluation",
        "serving",
    },
    "__main__": {"cli"},
}
# Words of our own worlds. The library finds worlds by entry points and must not name any.
WORLD_WORDS = re.compile(
    r"(?i:pusht|dualarm|meta-?world|robosuite|\bpushers?\b|\bviperx\b|\bur5e\b|\btriangle\b)|\bBOARD"
)


@cache
def parsed(file: Path) -> ast.Module:
    """The parsed file; each file is parsed once for all tests."""
    return ast.parse(file.read_text("utf-8"))


@cache
def imported(file: Path) -> frozenset[str]:
    """The dotted names of our modules that a file imports at run time."""
    found = set()
    code = parsed(file)
    typing = [n for n in ast.walk(code) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)]
    unused = {id(inner) for node in typing for inner in ast.walk(node)}
    for node in ast.walk(code):
        if id(node) in unused:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = node.module in PACKAGES
            found |= {f"{node.module}.{alias.name}" for alias in node.names} if inner else {node.module}
    return frozenset(name for name in found if name.split(".")[0] in PACKAGES)


def imports(file: Path, package: str) -> set[str]:
    """The imported modules of one package."""
    return {name for name in imported(file) if name.split(".")[0] == package}


def part(file: Path) -> str:
    """The module or folder of the library that a file belongs to."""
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def files_of(package: str) -> list[Path]:
    """Every module of a package."""
    return sorted(PACKAGES[package].rglob("*.py"))


FILES = [file for file in files_of("recap") if file != SOURCE / "__init__.py"]


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_what_they_may(package: str) -> None:
    for file in files_of(package):
        for other in set(PACKAGES) - MAY_IMPORT[package] - {package}:
            assert not imports(file, other), f"{file.relative_to(ROOT)} imports {other}"


def test_every_part_of_the_library_has_import_rules() -> None:
    assert {part(file) for file in FILES} == set(ALLOWED)


def test_parts_of_the_library_import_only_what_they_may() -> None:
    for file in FILES:
        found = {name.split(".")[1] for name in imports(file, "recap") if "." in name}
        beyond = found - ALLOWED[part(file)] - {part(file), "__version__"}
        assert not beyond, f"{file.relative_to(ROOT)} imports {sorted(beyond)}"


def test_the_library_names_no_world() -> None:
    """No name of a world, board, tool or robot of ours appears in the code, except examples in help texts."""
    found = []
    for file in FILES:
        code = parsed(file)
        texts = {id(node.value) for node in ast.walk(code) if isinstance(node, ast.Expr)}  # docstrings
        for node in ast.walk(code):
            word = None
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
                word = node.value
            elif isinstance(node, (ast.Name, ast.arg, ast.Attribute, ast.FunctionDef, ast.ClassDef)):
                word = getattr(node, "id", None) or getattr(node, "arg", None)
                word = word or getattr(node, "attr", None) or getattr(node, "name", None)
            if word and WORLD_WORDS.search(word) and not word.startswith(("no policy given", "none is")):
                found.append(f"{file.relative_to(ROOT)}:{node.lineno}: {word[:60]}")
    assert not found, "\n".join(found)


def test_no_pickle_eval_or_exec() -> None:
    for file in (file for package in PACKAGES for file in files_of(package)):
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec"), file
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                assert not {"pickle", "dill", "cloudpickle", "joblib"} & set(names), file


def python(*lines: str) -> None:
    """Runs lines in a new interpreter."""
    subprocess.run([sys.executable, "-c", "; ".join(lines)], check=True)


def test_importing_the_library_loads_neither_torch_nor_a_simulator() -> None:
    heavy = ["torch", "gymnasium", "mujoco", "pymunk", "lance", "cv2", "av", "numba"]
    python("import sys, recap", f"assert not set({heavy}) & set(sys.modules), set(sys.modules)")


def test_every_public_name_exists_and_has_a_docstring() -> None:
    import recap

    assert len(recap.__all__) == 27
    for name in recap.__all__:
        assert getattr(recap, name).__doc__, name
    assert set(recap.__all__) <= set(dir(recap))
    with pytest.raises(AttributeError, match="nothing"):
        _ = recap.nothing


def test_the_client_needs_numpy_msgpack_and_websockets_only() -> None:
    heavy = ["torch", "recap", "msgspec", "click", "aiohttp", "pyarrow"]
    python(
        "import sys",
        f"sys.modules.update(dict.fromkeys({heavy}))",
        "import recap_client, recap_client.wire",
        "recap_client.RobotLoop",
    )


def test_sweeps_need_neither_lance_nor_a_video_decoder() -> None:
    """Rented GPU machines often lack them; demonstrations come from snapshots or are collected there."""
    python(
        "import sys",
        "sys.modules.update(dict.fromkeys(['av', 'lance', 'aiohttp']))",
        "import recap_research.sweep.running, recap_worlds.dualarm.collection, recap.training.trainer",
    )


def test_importing_evaluation_needs_no_video_decoder() -> None:
    modules = [f"recap.evaluation.{file.stem}" for file in sorted((SOURCE / "evaluation").glob("[a-z]*.py"))]
    python(
        "import sys",
        "sys.modules.update(dict.fromkeys(['av', 'lance']))",
        f"import {', '.join(modules)}, recap.cli.evaluate",
    )
