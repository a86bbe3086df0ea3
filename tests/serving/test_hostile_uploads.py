"""Uploads that expand to much more than their size: refused quickly, in one line, without harm."""

from __future__ import annotations

import errno
import io
import json
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from served import Served, message_of, replay_spec, served

from episodes import observation_of, random_episode
from recap.errors import InputError
from recap.pool.lerobot import assemble, stage_episode
from recap.pool.store import Pool
from recap.serving.service import Service
from recap.serving.spec import Limits
from recap.serving.upload_reading import _lacks_memory
from recap_client.client import PolicyClient

ZIP = {"Content-Type": "application/zip"}
DEMO = random_episode("demo/0", 0, n=12)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("served") / "pool"
    Pool.create(place).add([DEMO])
    limits = Limits(max_upload_memory_bytes=400 * 2**20, upload_work_s=8.0)
    with served(Service.open(replay_spec(pool=str(place), limits=limits))) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    stage_episode(tmp_path / "staging", 0, random_episode("demo/1", 1, n=12))
    assemble(tmp_path / "staging", 1, tmp_path / "data")
    return tmp_path / "data"


def peak_rss_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def zipped(folder: Path) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            archive.write(file, str(file.relative_to(folder)))
    return out.getvalue()


def info(**changes: Any) -> Callable[[Path], None]:
    """Changes fields of the dataset's info.json."""

    def change(folder: Path) -> None:
        path = folder / "meta/info.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def zeros(name: str, n: int) -> Callable[[Path], None]:
    """Replaces one file by zeros."""

    def change(folder: Path) -> None:
        with (folder / name).open("wb") as file:
            file.truncate(n)

    return change


def long_words(folder: Path) -> None:
    """A table of a few kilobytes that expands to gigabytes: one long text in 3000 rows."""
    (path,) = (folder / "meta/episodes").glob("*/*.parquet")
    table = pq.read_table(path)
    rows = pa.concat_tables([table] * 3000)
    words = pa.array(["x" * 1_000_000]).dictionary_encode()
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int8()), words.dictionary)
    pq.write_table(rows.append_column("note", column), path, compression="zstd")


ATTACKS: dict[str, Callable[[Path], None]] = {
    "a billion episodes": info(total_episodes=10**9),
    "a billion frames": info(total_frames=10**9),
    "a wide template": info(data_path="data/{chunk_index:1000000000}/file.parquet"),
    "a template that looks inside": info(data_path="data/{chunk_index.__class__}/file.parquet"),
    "a wide film template": info(video_path="videos/{video_key:1000000000}.mp4"),
    "90 MB of info": zeros("meta/info.json", 90 * 10**6),
    "a table of long words": long_words,
}


@pytest.mark.parametrize("what", ATTACKS)
def test_a_small_upload_that_expands_to_gigabytes_is_refused_without_reading_it(
    server: Served, folder: Path, what: str
) -> None:
    ATTACKS[what](folder)
    body, before = zipped(folder), peak_rss_mib()
    status, answer = server.http("/api/pool", body, ZIP)
    grown = peak_rss_mib() - before
    error = json.loads(answer)["error"]
    assert status == 400, answer
    assert "\n" not in error
    assert len(error) < 1000
    assert "recap-upload" not in error
    assert grown < 100, "MiB: a child process reads the upload"
    assert server.http("/healthz")[0] == 200
    assert server.service.store.version == 2


def test_an_upload_beyond_its_time_limit_is_refused_while_robots_are_served(
    server: Served, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.service, "spec", replay_spec(limits=Limits(upload_work_s=0.001)))
    with PolicyClient(server.ws) as client:
        status, answer = server.http("/api/pool", zipped(folder), ZIP)
        assert (status, "0.001 s" in json.loads(answer)["error"]) == (400, True), answer
        assert not client.infer(message_of(observation_of(DEMO, 5)))["held"]
    monkeypatch.undo()
    assert server.http("/api/pool", zipped(folder), ZIP)[0] == 201, "a good upload is still accepted"


def test_an_upload_beyond_its_memory_limit_is_refused(
    server: Served, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.service, "spec", replay_spec(limits=Limits(max_upload_memory_bytes=2**20)))
    before = server.service.store.version
    status, answer = server.http("/api/pool?name=large", zipped(folder), ZIP)
    assert (status, "more memory" in json.loads(answer)["error"]) == (400, True), answer
    assert server.service.store.version == before
    assert server.http("/healthz")[0] == 200


def test_the_upload_process_does_not_rerun_the_main_script(tmp_path: Path) -> None:
    script = tmp_path / "serve.py"
    script.write_text(
        "print('once', flush=True)\n"
        "from pathlib import Path\n"
        "from recap.serving.spec import Limits\n"
        "from recap.serving.upload_reading import read_upload\n"
        f"Path({str(tmp_path)!r}, 'upload').write_bytes(b'no zip')\n"
        "try:\n"
        f"    read_upload(Path({str(tmp_path)!r}), None, True, Limits())\n"
        "except Exception as error:\n"
        "    print(error)\n"
    )
    told = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert told.stdout.splitlines() == ["once", "the zip cannot be read (BadZipFile): pack it again"], (
        told.stderr
    )


def test_a_lack_of_memory_is_recognised_behind_other_errors() -> None:
    for lack in (MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory")):
        damaged = InputError("a table is no Parquet file")
        damaged.__cause__ = lack
        assert _lacks_memory(damaged)
    assert not _lacks_memory(InputError("a table is no Parquet file"))
