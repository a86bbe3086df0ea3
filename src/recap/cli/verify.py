"""`recap verify`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--sums",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The list.  [default: SHA256SUMS in a folder, FILE.sha256 beside a file]",
)
@click.option("--write", is_flag=True, help="Write the list for the current files.")
def verify(path: Path, sums: Path | None, write: bool) -> int:
    """Check a checkpoint, a snapshot or a dataset against a list of SHA-256 sums.

    PATH is a folder or a file. The list has the format of sha256sum; keep a copy where others cannot change
    it. The exit code is 1 if a file was changed, removed or added. For a pool use recap pool verify.

    \b
    Example:
      recap verify runs/mine/checkpoint --write
      recap verify runs/mine/checkpoint
      recap verify mine.safetensors --sums keep/mine.sha256
    """
    from recap.cli.terminal import plain
    from recap.errors import InputError
    from recap.sums import check_sums, list_of, write_sums

    if not path.exists():
        raise InputError(f"{path} does not exist: give a checkpoint, a snapshot or a dataset")
    if (path / "pool.json").is_file():
        raise InputError(f"{path} is a pool, which stores its own hashes: recap pool verify {path}")
    sums = list_of(path) if sums is None else sums
    if write:
        click.echo(f"Listed: {write_sums(path, sums)} files in {sums}")
        click.echo(f"Next: recap verify {path}, and keep a copy of {sums} elsewhere")
        return 0
    found = check_sums(path, sums)
    words = (("changed", found.changed), ("missing", found.missing), ("not listed", found.unlisted))
    for what, names in words:
        for name in names:
            click.echo(f"{what}: {plain(name)}")
    n_bad = sum(len(names) for _, names in words)
    if n_bad:
        click.echo(f"{path} is not as listed in {sums}: {n_bad} files differ, {found.n} are as they were")
        return 1
    click.echo(f"{path} is sound: {found.n} files as listed in {sums}")
    return 0
