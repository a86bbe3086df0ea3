"""What the reader of docs/how-to/import-your-data.md has: small datasets of several formats in `data`.

`data/arm` and `data/hand` are there, as examples/one_arm writes them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hand_files import write_egodex
from source_files import write_robomimic, write_robotwin, write_tracked
from test_import_act import write_act

DATA = Path("data")
NAMES = {
    "observation.state": "joints.now",
    "action": "joints.next",
    "observation.images.front": "cam0",
    "observation.images.wrist": "cam1",
}


def with_own_names(source: Path, out: Path) -> None:
    """The same dataset with names that nobody knows, and the gripper as a column of its own."""
    shutil.copytree(source, out)
    (info_file,) = out.glob("meta/info.json")
    info = json.loads(info_file.read_text("utf-8"))
    info["features"] = {NAMES.get(name, name): feature for name, feature in info["features"].items()}
    info["features"]["gripper"] = {"dtype": "float32", "shape": [1], "names": ["gripper"]}
    info_file.write_text(json.dumps(info), "utf-8")
    for file in [*out.glob("data/*/*.parquet"), *out.glob("meta/episodes/*/*.parquet")]:
        table = pq.read_table(file)
        names = [NAMES.get(name, name) for name in table.column_names]
        for old, new in NAMES.items():
            names = [name.replace(f"videos/{old}/", f"videos/{new}/") for name in names]
        table = table.rename_columns(names)
        if "joints.now" in names:
            gripper = [[row[6]] for row in table["joints.now"].to_pylist()]
            table = table.append_column("gripper", pa.array(gripper, pa.list_(pa.float32(), 1)))
        pq.write_table(table, file)
    for old, new in NAMES.items():
        if (out / "videos" / old).is_dir():
            (out / "videos" / old).rename(out / "videos" / new)


def as_others_write_it(folder: Path) -> None:
    """Without ids of ours; a column of the episode table says which demonstrations begin alike."""
    for file in folder.glob("meta/episodes/*/*.parquet"):
        table = pq.read_table(file)
        table = table.drop([name for name in table.column_names if name.startswith("recap/")])
        pq.write_table(table.append_column("scene", pa.array(range(table.num_rows), pa.int64())), file)


def with_a_cut_table(source: Path, out: Path) -> None:
    """The same dataset without the last rows of its last demonstration."""
    shutil.copytree(source, out)
    for file in out.glob("data/*/*.parquet"):
        table = pq.read_table(file)
        pq.write_table(table.slice(0, table.num_rows - 9), file)


if __name__ == "__main__":
    as_others_write_it(DATA / "arm")
    as_others_write_it(DATA / "hand")
    with_own_names(DATA / "arm", DATA / "lab")
    with_a_cut_table(DATA / "arm", DATA / "damaged")
    write_act(DATA / "aloha")
    write_robomimic(DATA / "lift.hdf5")
    write_tracked(DATA / "hand_film")
    write_egodex(DATA / "egodex/fold/0.hdf5")
    write_robotwin(DATA / "robotwin/grab_roller/clean")
    pairs = [f"{name}/{number},{number}" for name in ("arm", "hand") for number in range(2)]
    Path("pairs.csv").write_text("\n".join(["episode,scene", *pairs, ""]), "utf-8")
