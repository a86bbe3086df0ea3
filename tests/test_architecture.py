"""The rooms of the house and which may look into which."""

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "recap"

# A room may import what is named here, and itself.
BASE = {
    "types",
    "errors",
    "plain",
    "lazy",
    "geometry",
    "geometry3",
    "compiled",
    "robotwin_tasks",
    "shapes",
    "contact",
    "run_directory",
    "workers",
    "video",
    "pictures",
    "pages",
    "charts",
}
MIDDLE = BASE | {"envs", "pool", "features", "retrieval", "standard_pools"}
ALLOWED = {
    "types": set(),
    "errors": set(),
    "plain": set(),
    "compiled": set(),
    "robotwin_tasks": {"errors"},
    "shapes": set(),
    "contact": {"types", "errors", "geometry", "shapes"},
    "lazy": set(),
    "geometry": {"types"},
    "geometry3": {"types", "errors"},
    "run_directory": {"errors"},
    "workers": {"errors"},
    "plugins": {"errors"},
    "video": {"types", "errors", "lazy", "run_directory"},
    "pictures": {"types", "errors"},
    "pages": {"errors"},
    "charts": set(),
    "envs": BASE,
    "pool": BASE,
    "features": BASE,
    "retrieval": BASE | {"pool", "features"},
    "standard_pools": BASE | {"envs", "pool"},
    "policies": BASE | {"features"},
    "latents": BASE | {"pool", "policies"},
    "agent": BASE | {"pool", "features", "retrieval", "policies", "latents"},
    "assembly": BASE | {"envs", "pool", "retrieval", "policies", "agent"},
    "training": BASE | {"pool", "features", "retrieval", "policies", "standard_pools"},
    "staging": BASE | {"pool"},
    "collection": BASE | {"envs", "pool", "staging"},
    "collection_dualarm": BASE | {"envs", "pool", "staging"},
    "evaluation": MIDDLE | {"agent", "policies", "assembly", "plugins"},
    "analysis": MIDDLE | {"agent", "policies", "assembly", "evaluation"},
    "plans": MIDDLE | {"policies", "training", "evaluation", "collection", "collection_dualarm"},
    "demo": MIDDLE | {"agent", "policies", "assembly", "evaluation", "collection"},
    "serving": MIDDLE | {"agent", "policies", "assembly", "plugins"},
    "studio": MIDDLE | {"agent", "policies", "evaluation", "serving"},
    "cli": MIDDLE
    | {"agent", "policies", "assembly", "training", "evaluation", "collection"}
    | {"collection_dualarm", "demo", "analysis", "serving", "studio"},
    "__main__": {"cli"},
}


def imports(file: Path) -> set[str]:
    """The rooms of ours that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [
                f"{node.module}.{alias.name}" if node.module == "recap" else node.module
                for alias in node.names
            ]
        found |= {name.split(".")[1] for name in names if name.startswith("recap.")}
    return found


def room(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


FILES = [file for file in sorted(SOURCE.rglob("*.py")) if file.parent != SOURCE or file.name != "__init__.py"]


def test_every_room_is_in_the_plan() -> None:
    assert {room(file) for file in FILES} == set(ALLOWED)


def test_the_arrows_point_one_way() -> None:
    for file in FILES:
        inner = {"__version__"}
        beyond = imports(file) - ALLOWED[room(file)] - {room(file)} - inner
        assert not beyond, f"{file.relative_to(SOURCE)} imports {sorted(beyond)}"


def test_nothing_is_pickled_or_evaluated() -> None:
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec"), file
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                assert not {"pickle", "dill", "cloudpickle", "joblib"} & set(names), file


def test_plans_need_neither_lance_nor_a_video_decoder() -> None:
    """A rented GPU seldom has them: demonstrations come from snapshots, or are collected there."""
    lines = [
        "import sys",
        "sys.modules.update(dict.fromkeys(['av', 'lance', 'aiohttp']))",
        "import recap.plans.running, recap.plans.dualarm, recap.training.trainer",
    ]
    subprocess.run([sys.executable, "-c", "; ".join(lines)], check=True)


def test_evaluation_needs_no_video_decoder_until_something_is_filmed() -> None:
    modules = [f"recap.evaluation.{file.stem}" for file in sorted((SOURCE / "evaluation").glob("[a-z]*.py"))]
    lines = [
        "import sys",
        "sys.modules.update(dict.fromkeys(['av', 'lance']))",
        f"import {', '.join(modules)}, recap.cli.evaluate",
    ]
    subprocess.run([sys.executable, "-c", "; ".join(lines)], check=True)
