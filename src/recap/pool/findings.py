"""What a check of a pool has found, and what a repair did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One damaged file, or one damaged episode where the file is not known to have changed."""

    file: str
    what: str
    episodes: tuple[str, ...] = ()  # of the newest version, that cannot be read whole


@dataclass(frozen=True, slots=True)
class Report:
    """What a check has found."""

    version: int
    n_episodes: int
    n_files: int
    n_bytes: int
    findings: tuple[Finding, ...]
    unsealed: tuple[int, ...]  # versions whose writer died before it sealed them; checked by content only
    leftovers: tuple[str, ...]  # files of no version: of a writer that died, or that is writing now

    @property
    def ok(self) -> bool:
        """Whether everything is as it was written."""
        return not self.findings

    @property
    def episodes(self) -> tuple[str, ...]:
        """Every episode that damage has reached."""
        return tuple(dict.fromkeys(name for finding in self.findings for name in finding.episodes))


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair did."""

    version: int
    lost: tuple[str, ...]  # episodes that the newest version no longer has; older ones still list them
    set_aside: tuple[str, ...]  # files
    redone: tuple[int, ...]  # versions whose manifest was lost and whose change was made again
    listing: str | None  # the file that lists all this
    report: Report  # of the pool as it is now
