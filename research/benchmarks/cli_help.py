"""How long does `recap --help` take, compared with starting Python alone?

python research/benchmarks/cli_help.py --json docs/results/cli_help.json
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from report import arguments, finish

from recap.cli.one_line import run_script

COMMANDS = {
    "python": [sys.executable, "-c", "pass"],
    "recap --help": [sys.executable, "-c", "from recap.cli import main; main(['--help'])"],
}


def main() -> None:
    """Run both alternately and report medians."""
    options = arguments(__doc__.splitlines()[0]).parse_args()
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(5 if options.quick else 15):
        for name, command in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            times[name].append(1000 * (time.perf_counter() - started))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        print(f"{name:<13} {median:6.0f} ms")
    finish({"median_ms": medians}, options.json)
    sys.exit(0 if medians["recap --help"] < 300 else 1)


if __name__ == "__main__":
    run_script(main)
