"""Results of checking and repairing a pool."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One damaged file, or one damaged episode if no file is known to have changed."""

    file: str
    what: str
    episodes: tuple[str, ...] = ()  # of the newest version that cannot be read completely


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a check."""

    version: int
    n_episodes: int
    n_files: int
    n_bytes: int
    findings: tuple[Finding, ...]
    unsealed: tuple[int, ...]  # versions without a seal because the writer died; checked by content only
    leftovers: tuple[str, ...]  # files of no version, left by a dead writer or written right now

    @property
    def ok(self) -> bool:
        """True if nothing is damaged."""
        return not self.findings

    @property
    def episodes(self) -> tuple[str, ...]:
        """Every damaged episode."""
        return tuple(dict.fromkeys(name for finding in self.findings for name in finding.episodes))


@dataclass(frozen=True, slots=True)
class Repair:
    """The result of a repair."""

    version: int
    lost: tuple[str, ...]  # episodes removed from the newest version; older versions still list them
    set_aside: tuple[str, ...]  # files
    redone: tuple[int, ...]  # versions with a lost manifest, whose change was committed again
    listing: str | None  # the file that lists the repair
    report: Report  # of the pool after the repair
