"""Does a pool survive kill -9, many concurrent writers and an object store? Exits with 1 if anything is lost.

python research/benchmarks/pool_stress.py --kills 200 --json docs/results/pool_stress.json
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from report import arguments, finish

from recap.cli.one_line import run_script
from recap.errors import InputError
from recap.pool.store import Pool
from recap.types import Episode

N_KILLS_A_POOL = 25  # then a new pool: a complete check takes longer with every version
MAX_LIFE_S = 0.25


def episode(name: str) -> Episode:
    """A small episode, sometimes with a video."""
    rng = np.random.default_rng(list(name.encode()))
    t = int(rng.integers(5, 30))
    film = {"top": rng.integers(0, 255, (t, 16, 16, 3), dtype=np.uint8)} if rng.random() < 0.2 else {}
    return Episode(
        id=name,
        scene_id=name,
        task="stress",
        embodiment="none",
        fps=10.0,
        timestamps=np.arange(t) / 10,
        proprio=rng.normal(size=(t, 2)).astype(np.float32),
        actions=rng.normal(size=(t, 2)).astype(np.float32),
        images=film,
    )


def work(
    uri: str, options: Mapping[str, str] | None, log: str, prefix: str, n: int, seed: int, shared: bool
) -> None:
    """Change a pool at random; every change is logged before it is requested and after it is acknowledged."""
    rng = random.Random(seed)
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(word: str, name: str) -> None:
        os.write(handle, f"{word} {name}\n".encode())

    pool = Pool.open(uri, options)
    note("open", "")
    mine: list[str] = []
    for i in range(n):
        names = [f"{prefix}-{i}-{k}" for k in range(rng.choice([1, 1, 3]))]
        if shared and rng.random() < 0.2:
            names = [f"shared-{i}"]
        for name in names:
            note("adding", name)
        try:
            pool.add([episode(name) for name in names])
        except InputError:
            continue  # another process was faster with a shared name
        for name in names:
            note("added", name)
        mine += [name for name in names if not name.startswith("shared")]
        chance = rng.random()
        if chance < 0.25 and mine:
            name = mine.pop(rng.randrange(len(mine)))
            note("removing", name)
            pool.remove([name])
            note("removed", name)
        elif chance < 0.4:
            pool.compact()
        elif chance < 0.5:
            pool.tag(f"tag of {prefix}", move=True)
        elif chance < 0.6 and options is None:  # where writers take turns
            pool.prune(keep=3, older_than=timedelta(0))


def read_log(log: Path) -> dict[str, set[str]]:
    """The started and the acknowledged changes."""
    found: dict[str, set[str]] = {word: set() for word in ("adding", "added", "removing", "removed")}
    for line in log.read_text().splitlines() if log.exists() else []:
        word, _, name = line.partition(" ")
        if word in found:
            found[word].add(name)
    return found


def failures(uri: str, options: Mapping[str, str] | None, said: Mapping[str, set[str]]) -> list[str]:
    """Episodes that the pool lost or duplicated, or kept although they were removed."""
    pool = Pool.open(uri, options)
    report = pool.verify()
    ids = pool.ids()
    problems = [f"verify: {finding}" for finding in report.findings]
    problems += [f"lost {name}" for name in said["added"] - said["removing"] - set(ids)]
    problems += [f"came back {name}" for name in said["removed"] & set(ids)]
    problems += [f"never asked for {name}" for name in set(ids) - said["adding"]]
    if len(ids) != len(set(ids)):
        problems.append("an id is there twice")
    return problems


def kill_rounds(
    context: Any, n: int, place: str, options: Mapping[str, str] | None, scratch: Path
) -> dict[str, Any]:
    """Start a writer, kill it at a random moment, check everything; n times."""
    rng = random.Random(0)
    problems: list[str] = []
    n_acknowledged = n_unsealed = n_in_flight = 0
    for round_ in range(n):
        if round_ % N_KILLS_A_POOL == 0:
            uri = f"{place}/kill-{round_}"
            Pool.create(uri, options)
            log = scratch / f"kill-{round_}.log"
        before = read_log(log)
        process = context.Process(
            target=work, args=(uri, options, str(log), f"r{round_}", 500, round_, False)
        )
        process.start()
        size = log.stat().st_size if log.exists() else 0
        deadline = time.monotonic() + 30
        while (log.stat().st_size if log.exists() else 0) == size and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, MAX_LIFE_S))
        process.kill()
        process.join()
        said = read_log(log)
        n_in_flight += len(said["adding"] - said["added"]) > len(before["adding"] - before["added"])
        found = failures(uri, options, said)
        problems += [f"round {round_}: {problem}" for problem in found]
        n_unsealed += bool(Pool.open(uri, options).verify().unsealed) if options is None else 0
        n_acknowledged += len(said["added"]) - len(before["added"])
        if found:
            break
    print(
        f"{n} kills: {n_acknowledged} episodes acknowledged, {n_in_flight} killed inside an add, "
        f"{n_unsealed} between commit and seal, problems: {len(problems)}"
    )
    return {
        "kills": n,
        "acknowledged": n_acknowledged,
        "inside_an_add": n_in_flight,
        "between_commit_and_seal": n_unsealed,
        "problems": problems,
    }


def many_writers(
    context: Any, n: int, appends: int, place: str, options: Mapping[str, str] | None, scratch: Path
) -> dict[str, Any]:
    """n processes append, remove, compact and tag concurrently, partly with the same ids."""
    uri = f"{place}/many"
    Pool.create(uri, options)
    logs = [scratch / f"many-{i}.log" for i in range(n)]
    started = time.perf_counter()
    processes = [
        context.Process(target=work, args=(uri, options, str(logs[i]), f"w{i}", appends, i, True))
        for i in range(n)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=500)
    seconds = time.perf_counter() - started
    problems = [f"writer {i} ended with {p.exitcode}" for i, p in enumerate(processes) if p.exitcode != 0]
    said: dict[str, set[str]] = {}
    n_added = 0
    for log in logs:
        for word, names in read_log(log).items():
            said.setdefault(word, set()).update(names)
            n_added += len(names) if word == "added" else 0
    if n_added != len(said["added"]):
        problems.append("two writers were told that they added the same id")
    problems += failures(uri, options, said)
    versions = Pool.open(uri, options).version
    rate = n_added / seconds
    print(f"{n} writers x {appends}: {n_added} episodes in {seconds:.1f} s, problems: {len(problems)}")
    return {
        "writers": n,
        "appends_each": appends,
        "episodes": n_added,
        "versions": versions,
        "seconds": seconds,
        "episodes_per_s": rate,
        "problems": problems,
    }


def object_store(context: Any, kills: int, n_appends: int, scratch: Path) -> dict[str, Any]:
    """The same tests on an object store on loopback."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    scratch = scratch / "object-store"
    scratch.mkdir()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = {
            "aws_endpoint": f"http://{host}:{port}",
            "allow_http": "true",
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
            "aws_region": "us-east-1",
        }
        client = boto3.client(
            "s3",
            endpoint_url=options["aws_endpoint"],
            aws_access_key_id="test",
            aws_secret_access_key="test",
            region_name="us-east-1",
        )
        client.create_bucket(Bucket="stress")
        return {
            "writers": many_writers(context, 8, n_appends, "s3://stress", options, scratch),
            "kills": kill_rounds(context, kills, "s3://stress", options, scratch),
        }
    finally:
        server.stop()


def main() -> None:
    """Run all three tests."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    options = parser.parse_args()
    kills = min(options.kills, 20) if options.quick else options.kills
    n_appends = 5 if options.quick else 50
    os.environ["PYTHONWARNINGS"] = "ignore:lance is not fork-safe"  # the fork server runs no Lance code
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["recap.pool.store", "recap.pool.blobs"])
    scratch = Path(tempfile.mkdtemp(prefix="pool-stress-"))
    try:
        result = {
            "kill": kill_rounds(context, kills, str(scratch), None, scratch),
            "writers": many_writers(context, 8, n_appends, str(scratch), None, scratch),
            "object_store": object_store(context, 5 if options.quick else 30, n_appends, scratch),
        }
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    finish(result, options.json)
    store = result["object_store"]
    problems = [
        problem
        for part in (result["kill"], result["writers"], store["writers"], store["kills"])
        for problem in part["problems"]
    ]
    for problem in problems[:20]:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    run_script(main)
