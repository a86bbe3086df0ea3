"""Work distributed over processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FOREVER = """
import os, sys, time
from recap.workers import run_in_workers


def work(items):
    for item in items:
        print(os.getpid(), flush=True)
        time.sleep(600)
        yield item


if __name__ == "__main__":
    list(run_in_workers(work, [1, 2], 2))
"""


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return status != "Z"


def test_workers_do_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "forever.py"
    script.write_text(FOREVER)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(parent.stdout.readline()) for _ in range(2)]
    assert all(map(is_there, pids))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    until = time.monotonic() + 120
    while any(map(is_there, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(is_there, pids))
    parent.stdout.close()
