"""The paper's results on PushT with their sources; success in per cent of 50 episodes per angle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ANGLES = ("-60", "-45", "-30", "-15", "0", "+15", "+30", "+45", "+60")
UNSEEN = tuple(angle for angle in ANGLES if angle not in ("-45", "+45"))
CAUTION = (
    "The paper's network is larger and pretrained, its demonstrations are others, and it chooses the pool by "
    "the true goal angle: compare the order of methods, not the level."
)


@dataclass(frozen=True)
class PublishedRow:
    """A method's success rates at 0.85."""

    name: str
    where: str
    angles: Mapping[str, float]  # angle -> per cent; empty if the paper gives only means
    seen: float | None
    unseen: float | None


def _row(name: str, seen: float, unseen: float, *values: float) -> PublishedRow:
    angles = dict(zip(ANGLES, values, strict=True))
    return PublishedRow(name, "appendix A, table of baselines", angles, seen, unseen)


def _mean(name: str, where: str, unseen: float) -> PublishedRow:
    return PublishedRow(name, where, {}, None, unseen)


_ABLATION = "appendix A, 2×2 ablation"
_BACKBONE = "section 5.1, backbone comparison"
ROWS: Mapping[str, PublishedRow] = {
    "no-retrieval": _row("Cosmos Policy", 33.0, 6.0, 6, 20, 0, 0, 2, 2, 14, 46, 18),
    "retrieval-only": _row("Retrieval Only", 16.0, 16.9, 24, 10, 16, 10, 14, 12, 18, 22, 24),
    "co-training": _row("Co-train (all)", 23.0, 19.1, 16, 22, 20, 18, 20, 20, 20, 24, 20),
    "ours": _row("Ours", 50.0, 34.9, 28, 40, 44, 26, 28, 36, 48, 60, 34),
    "absolute-off": _mean("absolute, next state off", _ABLATION, 26.3),
    "residual-off": _mean("residual, next state off", _ABLATION, 27.4),
    "absolute-on": _mean("absolute, next state on", _ABLATION, 27.4),
    "residual-on": _mean("residual, next state on", _ABLATION, 34.9),
    "no-retrieval-off": _mean("no retrieval, next state off", _ABLATION, 8.3),
    "no-retrieval-on": _mean("no retrieval, next state on", _ABLATION, 6.0),
    "vla": _mean("π0.5 without retrieval", _BACKBONE, 6.6),
    "vla-retrieval": _mean("π0.5 with retrieval", _BACKBONE, 25.1),
}

PROGRESSION = "section 5.1: unseen rises from 6.0 without retrieval to 34.9 with the full pool"

# slot, region, layer of 28, ratio: appendix B, table of ROI peaks
ROI_WHERE = "appendix B, table of ROI peaks (28 layers)"
ROI_PEAKS = {
    "frame>t_block": (10, 2.1),
    "retrieved_frame_0>t_block": (10, 5.1),
    "retrieved_frame_1>t_block_next": (10, 5.4),
    "frame>predicted_end": (15, 3.9),
    "retrieved_frame_1>predicted_end": (15, 3.0),
    "retrieved_frame_0>predicted_end": (15, 1.0),  # "(release)"
}

# angle -> L10 and L15 blocked on five successes, L10 blocked on five failures, per cent that then succeed
MASKING_WHERE = "appendix B, causal ablation (5 successes and 5 failures an angle)"
MASKING = {
    "-60": (60, 60, 40),
    "-30": (80, 80, 20),
    "-15": (80, 40, 20),
    "0": (20, 40, 20),
    "+15": (60, 80, 0),
    "+30": (80, 60, 20),
    "+60": (40, 40, 40),
}

# angle -> ratio at success, at failure
COMMIT_WHERE = "appendix C, L15, last retrieved frame on the predicted end"
COMMIT = {
    "-60": (3.12, 2.43),
    "-30": (2.63, 1.85),
    "-15": (2.95, 2.09),
    "0": (2.99, 1.97),
    "+15": (2.92, 2.50),
    "+30": (3.01, 2.87),
    "+60": (3.41, 3.28),
}
ANCHORING_WHERE = "appendix C, L10, first retrieved frame on the T-block"
ANCHORING = {
    "-60": (5.02, 6.03),
    "-30": (5.58, 5.19),
    "-15": (4.89, 5.13),
    "0": (4.32, 6.62),
    "+15": (5.33, 4.85),
    "+30": (5.73, 5.58),
    "+60": (4.32, 5.61),
}
CLUSTERS_WHERE = "appendix C"
CLUSTERS = {"moves": 25, "never engages": 10}
