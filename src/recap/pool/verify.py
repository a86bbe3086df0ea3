"""Checks every byte of a pool against its hashes, names the damaged episodes, and repairs.

A repair moves damaged files to quarantine, keeps the rest usable and repeats lost commits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from recap.errors import DatasetError
from recap.pool.blobs import blob_name
from recap.pool.files import Files, is_intact, sealed, sha256, unsealed
from recap.pool.findings import Finding, Repair, Report
from recap.pool.pruning import needed_files
from recap.pool.salvage import find_rows
from recap.pool.schema import Row, table_of
from recap.pool.seals import (
    PRUNED,
    UNKNOWN,
    Seal,
    being_removed,
    logical_state,
    pruned_up_to,
    read_seals,
    rows_by_file,
    seal_name,
)
from recap.pool.store import MARK, MARKED, Pool
from recap.pool.table import FOLDER, Conflict, Damage, Table, fragment_files, manifest_name

HINT = f"{FOLDER}/_versions/latest_version_hint.json"  # written by Lance in place; only a hint


@dataclass(slots=True)
class Survey:
    """State of a check, also used by a repair."""

    files: Files
    table: Table
    seals: dict[int, Seal] = field(default_factory=dict)
    changed: dict[str, str] = field(default_factory=dict)  # file -> expected hash
    findings: list[Finding] = field(default_factory=list)
    missing_seals: list[int] = field(default_factory=list)
    suspects: tuple[int, ...] = ()  # damaged fragments of the newest version
    rescued: dict[str, tuple[Row, int]] = field(default_factory=dict)  # intact rows of these fragments
    lost: dict[str, str] = field(default_factory=dict)  # episode -> reason
    n_files: int = 0
    n_bytes: int = 0

    def found(self, file: str, what: str, episodes: Iterable[str] = ()) -> None:
        self.findings.append(Finding(file, what, tuple(episodes)))

    def read(self, name: str) -> bytes | None:
        """The contents of a file to check; None if it is missing."""
        try:
            data = self.files.read(name)
        except FileNotFoundError:
            return None
        self.n_files += 1
        self.n_bytes += len(data)
        return data


def verify(pool: Pool) -> Report:
    """Check a pool without changing it."""
    return _report(_survey(pool))


def repair(pool: Pool) -> Repair:
    """Repair what `verify` finds; an intact pool is not changed."""
    with pool.files.turn():
        seen = _survey(pool)
        if not seen.findings and not seen.missing_seals:
            return Repair(pool.version, (), (), (), None, _report(seen))
        try:
            lost, redone = _repair(pool, seen)
        except Conflict:  # only on an object store; a second run repairs the rest
            raise DatasetError(f"pool {pool.uri} is being written to: stop that and repair again") from None
        listing = None
        if seen.findings:
            listing = _write_listing(pool, seen, lost)
    pool.table.forget()
    pool._loader.forget()
    after = pool.verify()
    names = tuple(dict.fromkeys(finding.file for finding in seen.findings))
    return Repair(after.version, tuple(lost), names, tuple(redone), listing, after)


def _report(seen: Survey) -> Report:
    """The public report of a check."""
    head = seen.table.head()
    return Report(
        int(head.version),
        len(seen.table.index(head).ids),
        seen.n_files,
        seen.n_bytes,
        tuple(seen.findings),
        tuple(seen.missing_seals),
        tuple(_leftovers(seen)),
    )


def _survey(pool: Pool) -> Survey:
    """Check everything on disk, without any cache of this process."""
    seen = Survey(pool.files, Table(pool.files))
    if seen.read(MARK) != MARKED:
        seen.found(MARK, "it has changed")
    aside = _set_aside(seen)
    _check_seals(seen)
    _check_sealed_files(seen, aside)
    head = seen.table.head()
    for version in seen.table.damaged:
        name = manifest_name(version)
        if name not in seen.changed:
            seen.found(name, f"version {version} cannot be read")
    _check_hint(seen, max(seen.table.versions()))
    cameras = _check_rows(seen, head)
    _check_blobs(seen, cameras, aside)
    _check_small_files(seen)
    return seen


def _listings(files: Files) -> list[str]:
    return [name for name in files.names("quarantine") if name.count("/") == 1]


def _set_aside(seen: Survey) -> dict[str, str]:
    """Files that an earlier repair found damaged -> expected hash."""
    found: dict[str, str] = {}
    for name in _listings(seen.files):
        try:
            found.update(unsealed(seen.files.read(name))["files"])
        except ValueError:
            seen.found(name, "a listing has changed; what it lists is found again")
    return found


def _check_seals(seen: Survey) -> None:
    seen.seals = read_seals(seen.files)
    intact = {seal_name(version) for version in seen.seals}
    intact |= {PRUNED} if pruned_up_to(seen.files) < UNKNOWN else set()
    there = seen.files.names("seals")
    for name in there:
        seen.read(name)
        if name not in intact:
            seen.found(name, "a seal has changed; the version it belongs to is checked by content only")
    seen.missing_seals += [v for v in seen.table.versions() if seal_name(v) not in there]


def _check_sealed_files(seen: Survey, aside: Mapping[str, str]) -> None:
    # Lance removes data before manifests: an interrupted prune leaves versions without some of their files.
    pruned, there = pruned_up_to(seen.files), set(seen.table.versions()) - being_removed(seen.files)
    needed = needed_files(seen.table, there) if pruned else set()
    for version, seal in sorted(seen.seals.items()):
        for name, digest in seal.files.items():
            data = seen.read(name)
            if (data is not None and sha256(data) == digest) or aside.get(name) == digest:
                continue
            if data is None and name not in needed and version <= pruned and version not in there:
                continue  # the version was removed by an interrupted prune, which has not updated its seal
            seen.changed[name] = digest
            if "/data/" in name or "/_deletions/" in name:
                continue  # reported below with its episodes, if the newest version needs it
            what = "is missing" if data is None else "has changed"
            of = "manifest" if name.endswith(".manifest") else "record"
            reached = seal.added if of == "manifest" and version == max(seen.seals) else ()
            seen.found(name, f"the {of} of version {version} {what}", reached)


def _check_hint(seen: Survey, newest: int) -> None:
    data = seen.read(HINT)
    try:
        if data is not None and not 0 < int(json.loads(data)["version"]) <= newest:
            raise ValueError
    except (ValueError, KeyError, TypeError):
        seen.found(HINT, "it has changed; Lance does without")


def _check_rows(seen: Survey, head: Any) -> dict[str, dict[str, str]]:
    """Check every row of the newest version; returns the videos of the intact ones: id -> camera -> hash."""
    index = seen.table.index(head)
    by_fragment: dict[int, dict[str, str]] = {}
    for key in index.keys:
        by_fragment.setdefault(key.fragment, {})[key.id] = key.sha256
    cameras: dict[str, dict[str, str]] = {}
    suspects: dict[int, list[str]] = {}
    used = set()
    for fragment in head.get_fragments():
        names, number = fragment_files(fragment.metadata), fragment.fragment_id
        used.update(names)
        rows: list[Row] = []
        if not seen.changed.keys() & set(names):
            with suppress(Damage):
                rows = seen.table.fragment_rows(head, number)
        if rows and {row.id: row.sha256 for row in rows if row.intact} == by_fragment.get(number):
            cameras.update({row.id: row.cameras for row in rows})
        else:
            suspects[number] = names
    state = logical_state(seen.seals, int(head.version))
    if suspects:
        for row, _ in _rescue(seen, suspects, by_fragment, state, set(cameras)):
            cameras[row.id] = row.cameras
    for name in seen.changed:
        if ("/data/" in name or "/_deletions/" in name) and name not in used:
            seen.found(name, "it is damaged; only older versions need it")
    rows_now = index.state()
    if state is not None and not suspects and state != rows_now:
        odd = sorted({name for name, _ in rows_now.items() ^ state.items()})
        seen.found(FOLDER, "its rows are not those of its seals", odd)
    return cameras


def _rescue(
    seen: Survey,
    suspects: Mapping[int, list[str]],
    by_fragment: Mapping[int, Mapping[str, str]],
    state: Mapping[str, str] | None,
    good: set[str],
) -> list[tuple[Row, int]]:
    """Find intact copies of the rows of damaged fragments, and report the others as lost."""
    held = rows_by_file(seen.seals)
    of_fragment = {n: {**by_fragment.get(n, {}), **held.get(names[0], {})} for n, names in suspects.items()}
    expected = state
    if expected is None:  # without all seals: rows Lance can read, else all that the file ever had
        expected = {}
        for number in suspects:
            expected.update(by_fragment.get(number) or of_fragment[number])
    expected = {name: digest for name, digest in expected.items() if name not in good}
    rescued = find_rows(seen.files, seen.seals, expected, tuple(names[0] for names in suspects.values()))
    seen.suspects, seen.rescued = tuple(suspects), rescued
    for number, names in suspects.items():
        lost = [name for name in expected if name in of_fragment[number] and name not in rescued]
        file = next((name for name in names if name in seen.changed), names[0])
        for name in lost:
            seen.lost[name] = f"{file} is damaged"
        rest = "the other episodes" if lost else "every episode in it"
        seen.found(file, f"it is damaged; {rest} can still be read", lost)
    return list(rescued.values())


def _check_blobs(seen: Survey, cameras: Mapping[str, Mapping[str, str]], aside: Mapping[str, str]) -> None:
    users: dict[str, list[str]] = {}
    for name, videos in cameras.items():
        for digest in videos.values():
            users.setdefault(digest, []).append(name)
    names = set(seen.files.names("blobs")) | {blob_name(digest) for digest in users}
    for name in sorted(names):
        data = seen.read(name)
        if data is not None and is_intact(name, data):
            continue
        digest = name.rpartition("/")[2].partition(".")[0]
        reached = users.get(digest, [])
        if aside.get(name) == digest and not reached:
            continue
        seen.changed[name] = digest
        for episode in reached:
            seen.lost[episode] = f"{name} is damaged"
        seen.found(name, "a video is missing" if data is None else "a video has changed", reached)


def _check_small_files(seen: Survey) -> None:
    versions = set(seen.table.versions())
    for name in [*seen.files.names("derived"), *seen.files.names("tags")]:
        data = seen.read(name) or b""
        if name.endswith(".safetensors"):
            if not is_intact(name, data):
                seen.found(name, "descriptors have changed; they are computed again")
            continue
        try:
            body = unsealed(data)
        except ValueError:
            seen.found(name, "it has changed")
            continue
        if name.startswith("tags/") and body["version"] not in versions:
            seen.found(name, f"version {body['version']} of tag '{body['name']}' is not there")


def _leftovers(seen: Survey) -> list[str]:
    known = {name for seal in seen.seals.values() for name in seal.files} | {HINT}
    for version in seen.missing_seals:
        known.add(manifest_name(version))
        try:
            dataset = seen.table.at(version)
        except (Damage, DatasetError):
            continue
        known.update(n for f in dataset.get_fragments() for n in fragment_files(f.metadata))
        known.add(seen.table.transaction_name(dataset) or "")
    return [name for name in seen.files.names(FOLDER) if name not in known]


def _repair(pool: Pool, seen: Survey) -> tuple[dict[str, str], list[int]]:
    files, table = pool.files, seen.table
    for finding in seen.findings:
        name = finding.file
        folder = name.partition("/")[0]
        if name == MARK:
            files.write(MARK, MARKED)
        elif folder in ("derived", "tags", "seals", "quarantine") or name == HINT:
            _move(pool, name)
    head = table.head()
    broken = [version for version in table.versions() if version > head.version]
    for name in list(seen.changed):
        if name.endswith(".manifest"):
            _move(pool, name)
    for version in broken:
        _move(pool, manifest_name(version))
        _move(pool, seal_name(version))  # the version number is used again
    table.forget()
    head = table.head()
    for version in table.versions():
        if version <= head.version:
            with suppress(Damage, DatasetError, FileNotFoundError):  # seal what can be read
                table.seal_late(version)
    redone = [version for version in broken if version in seen.seals]
    target = {key.id: key.sha256 for key in table.index(head).keys if key.fragment not in seen.suspects}
    target.update({name: row.sha256 for name, (row, _) in seen.rescued.items()})
    for version in redone:
        seen.seals[version].apply(target)
    _bring(table, seen, head, {name: d for name, d in target.items() if name not in seen.lost})
    return dict(seen.lost), redone


def _bring(table: Table, seen: Survey, head: Any, target: dict[str, str]) -> None:
    """Commit the changes from the head to `target` (id -> hash); damaged fragments keep their intact rows."""
    bad = [f.fragment_id for f in head.get_fragments() if f.fragment_id in seen.suspects]
    good = [key for key in table.index(head).keys if key.fragment not in bad]
    gone = [key for key in good if target.get(key.id) != key.sha256]
    if gone:
        head = table.delete(head, gone, "repair")
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
        table.replace(head, bad, new, seen.lost)


def _move(pool: Pool, name: str) -> None:
    if pool.files.exists(name):
        pool.files.write(f"quarantine/files/{name}", pool.files.read(name))
        pool.files.remove(name)


def _write_listing(pool: Pool, seen: Survey, lost: dict[str, str]) -> str:
    """List the damaged files, for people and for later checks, which skip them."""
    numbers = [int(name[-9:-5]) for name in _listings(pool.files) if name[-9:-5].isdecimal()]
    name = f"quarantine/{max(numbers, default=0) + 1:04d}.json"
    body = {
        "files": seen.changed,
        "episodes": lost,
        "findings": [[finding.file, finding.what] for finding in seen.findings],
    }
    pool.files.write(name, sealed(body))
    return name
