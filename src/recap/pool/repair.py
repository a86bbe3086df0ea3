"""Mends a pool after damage: sets the bad aside, keeps the rest usable, does lost commits again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recap.errors import DatasetError
from recap.pool.salvage import find_rows
from recap.pool.schema import table_of
from recap.pool.sealing import seal_version
from recap.pool.seals import new_op, seal_name, sealed
from recap.pool.table import Conflict, Damage, Table, manifest_name
from recap.pool.verify import HINT, Report, Survey, report_of, survey

if TYPE_CHECKING:
    from recap.pool.store import Pool


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair did."""

    version: int
    lost: tuple[str, ...]  # episodes that the newest version no longer has; older ones still list them
    set_aside: tuple[str, ...]  # files
    redone: tuple[int, ...]  # versions whose manifest was lost and whose change was made again
    listing: str | None  # the file that tells all this
    report: Report  # of the pool as it is now


def repair(pool: Pool) -> Repair:
    """Mend what `verify` finds; a sound pool is left as it is."""
    with pool.files.turn():
        seen = survey(pool)
        if not seen.findings and not seen.missing_seals:
            return Repair(pool.version, (), (), (), None, report_of(seen))
        try:
            lost, redone = _mend(pool, seen)
        except Conflict:  # only on a store without a line to wait in; a second run takes up the rest
            raise DatasetError(f"pool {pool.uri} is being written to: stop that and repair again") from None
        listing = None
        if seen.findings:
            listing = _write_listing(pool, seen, lost)
    pool.table.forget()
    pool._loader.forget()
    after = pool.verify()
    names = tuple(dict.fromkeys(finding.file for finding in seen.findings))
    return Repair(after.version, tuple(lost), names, tuple(redone), listing, after)


def _mend(pool: Pool, seen: Survey) -> tuple[dict[str, str], list[int]]:
    from recap.pool.store import MARK, MARKED

    files, table = pool.files, seen.table
    for finding in seen.findings:
        name = finding.file
        folder = name.partition("/")[0]
        if name == MARK:
            files.write(MARK, MARKED)
        elif folder in ("derived", "tags", "seals") or name == HINT:
            _move(pool, name)
    head = table.head()
    broken = [version for version in table.versions() if version > head.version]
    for name in list(seen.changed):
        if name.endswith(".manifest"):
            _move(pool, name)
    for version in broken:
        _move(pool, manifest_name(version))
        _move(pool, seal_name(version))  # its number is used again
    table.forget()
    head = table.head()
    _seal_again(table, seen, int(head.version))
    redone = [version for version in broken if version in seen.seals]
    target = {key.id: key.sha256 for key in table.index(head).keys if key.fragment not in seen.suspects}
    target.update({name: row.sha256 for name, (row, _) in seen.rescued.items()})
    for version in redone:
        for name in seen.seals[version].removed:
            target.pop(name, None)
        target.update(seen.seals[version].added)
    head = _bring(table, seen, head, {name: d for name, d in target.items() if name not in seen.lost})
    return dict(seen.lost), redone


def _bring(table: Table, seen: Survey, head: Any, target: dict[str, str]) -> Any:
    """Commit what leads from the head to id -> hash, damaged fragments replaced by what is still whole."""
    bad = [f.fragment_id for f in head.get_fragments() if f.fragment_id in seen.suspects]
    good = [key for key in table.index(head).keys if key.fragment not in bad]
    gone = [key for key in good if target.get(key.id) != key.sha256]
    if gone:
        done = table.delete(head, gone, op := new_op("repair", n=len(gone)))
        seal_version(table, done, head, op)
        head = done
    have = {key.id for key in good} - {key.id for key in gone}
    wanted = {name: digest for name, digest in target.items() if name not in have}
    found = {name: seen.rescued[name] for name in wanted if name in seen.rescued}
    rest = {name: digest for name, digest in wanted.items() if name not in found}
    if rest:
        found.update(find_rows(table.files, seen.seals, rest))
    for name in rest:
        if name not in found:
            seen.lost.setdefault(name, "its data are damaged")
    if bad or found:
        pairs = sorted(found.values(), key=lambda pair: pair[1])
        rows, seqs = [row for row, _ in pairs], [seq for _, seq in pairs]
        new = table.write(head, table_of(rows, seqs)) if pairs else None
        done = table.replace(head, bad, new, op := new_op("repair", n=len(pairs)))
        seal_version(table, done, head, op, lost=seen.lost)
        head = done
    return head


def _seal_again(table: Table, seen: Survey, newest: int) -> None:
    """Seal what has no seal, as far as it can be read."""
    for version in table.versions():
        if version <= newest and not table.files.exists(seal_name(version)):
            try:
                before = table.at(version - 1) if version > 1 else None
                seal_version(table, table.at(version), before, table.message(version))
            except (Damage, DatasetError, FileNotFoundError):
                continue


def _move(pool: Pool, name: str) -> None:
    if pool.files.exists(name):
        pool.files.write(f"quarantine/files/{name}", pool.files.read(name))
        pool.files.remove(name)


def _write_listing(pool: Pool, seen: Survey, lost: dict[str, str]) -> str:
    """What was set aside, for people, and for later checks that need not find it again."""
    n_before = len([name for name in pool.files.names("quarantine") if name.count("/") == 1])
    name = f"quarantine/{n_before + 1:04d}.json"
    body = {
        "files": seen.changed,
        "episodes": lost,
        "findings": [[finding.file, finding.what] for finding in seen.findings],
    }
    pool.files.write(name, sealed(body))
    return name
