"""The policy folder for a RoboTwin checkout."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from recap.errors import RunDirectoryError
from recap_robotwin import deploy_policy

INIT = '''"""Made by `recap robotwin init`."""

from .deploy_policy import eval, get_model, reset_model  # noqa: F401
'''

SETTINGS = """\
# Filled in by eval.sh.
policy_name: null
task_name: null
task_config: null
ckpt_setting: null
seed: null
instruction_type: unseen

# ReCAP. Paths are seen from RoboTwin's root.
python: {python}
pool: {pool}
policy: replay            # or a policy's directory
retrieval: null           # null: as the policy was trained; to replay: world, blind, or another by name
n_action_steps: null      # actions executed before the next retrieval
n_candidates: null
denoising_steps: null
device: cpu               # or cuda
reaction: hold            # to nothing found, or a confidence below min_confidence: hold, stop or ignore
min_confidence: 0.0
objects: null             # for retrievals that follow objects: names of the task's actors, such as can,pot
"""

SCRIPT = """\
#!/bin/bash
# bash eval.sh TASK TASK_CONFIG SETTING SEED GPU [--pool PATH] [--policy DIR] …
# SETTING names the folder of the results; what follows GPU overrides deploy_policy.yml.
set -e
if [ "$#" -lt 5 ]; then sed -n 2,3p "$0"; exit 2; fi
cd "$(dirname "$0")/../.."
export CUDA_VISIBLE_DEVICES="$5"
python script/eval_policy.py --config "policy/{name}/deploy_policy.yml" --overrides \\
    --task_name "$1" --task_config "$2" --ckpt_setting "$3" --seed "$4" --policy_name "{name}" "${{@:6}}"
"""


def files(name: str, pool: str | None, python: str | None) -> Mapping[str, str]:
    """The files of the folder: name -> text."""
    return {
        "__init__.py": INIT,
        "deploy_policy.py": Path(deploy_policy.__file__).read_text("utf-8"),
        "deploy_policy.yml": SETTINGS.format(pool=_yaml(pool), python=_yaml(python)),
        "eval.sh": SCRIPT.format(name=name),
    }


def init_folder(folder: Path, pool: str | None = None, python: str | None = sys.executable) -> None:
    """Write the folder; existing files are never replaced."""
    wanted = files(folder.name, pool, python)
    there = [name for name in wanted if (folder / name).exists()]
    if there:
        raise RunDirectoryError(f"{folder} has a {there[0]} already: give another DIR, or remove it first")
    if not folder.name.isidentifier() or folder.name == "recap":  # our package has that name
        raise RunDirectoryError(
            f"RoboTwin imports a policy by its folder's name, and '{folder.name}' will not do: call it ReCAP"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in wanted.items():
        (folder / name).write_text(text, "utf-8")
    (folder / "eval.sh").chmod(0o755)


def _yaml(text: str | None) -> str:
    """A YAML scalar: null, or a quoted string."""
    return "null" if text is None else "'" + text.replace("'", "''") + "'"
