"""A short version of `research/benchmarks/serve_fuzz.py`."""

from serve_fuzz import fuzz_bombs, fuzz_frames, fuzz_uploads


def test_malformed_frames_are_refused_without_memory_growth() -> None:
    told = fuzz_frames(3000, seed=1)
    assert told["refused"] + told.get("taken", 0) == 3000
    assert told["refused"] > 2000
    assert told["memory_growth_kib"] < 500


def test_decompression_bombs_use_little_memory() -> None:
    assert fuzz_bombs()["memory_peak_mib"] < 5


def test_malformed_uploads_are_all_answered() -> None:
    told = fuzz_uploads(60, seed=1)
    assert sum(told["statuses"].values()) == 60
    assert told["statuses"].get("400", 0) > 30
