"""Names of tags and demonstrations: none looks like a version number or sends terminal escapes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from toy_pool import toy_episode

from recap.cli.pool import pool as commands
from recap.errors import InputError
from recap.pool.files import sealed, sha256
from recap.pool.store import Pool

ESCAPE = "\x1b[2J\x1b]0;owned\x07"


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    made = Pool.create(tmp_path / "pool")
    made.add([toy_episode("a")])
    made.add([toy_episode("b")])
    return made


@pytest.mark.parametrize("name", ["2", "007", "٢", " 2", "2 ", "-1", "+3"])
def test_a_tag_that_looks_like_a_version_is_refused(pool: Pool, name: str) -> None:
    with pytest.raises(InputError, match="looks like a version"):
        pool.tag(name, 1)
    assert pool.tags() == {}


def test_an_old_tag_named_like_a_version_does_not_shadow_the_version(pool: Pool) -> None:
    pool.files.write(f"tags/{sha256(b'2')[:32]}.json", sealed({"name": "2", "version": 1}))
    assert pool.tags() == {"2": 1}
    assert pool.resolve("2") == 2
    pool.rollback("2")
    assert pool.ids() == ("a",)


@pytest.mark.parametrize("name", [ESCAPE, "a\nb", "a\0b", "\u202eabc", "\u200b", "x" * 201, "  "])
def test_a_tag_must_be_one_short_line_of_visible_text(pool: Pool, name: str) -> None:
    with pytest.raises(InputError):
        pool.tag(name)
    assert pool.tags() == {}


@pytest.mark.parametrize("field", ["id", "scene_id", "task", "embodiment", "source", "action_space"])
@pytest.mark.parametrize("text", [ESCAPE, "a\nb", "a\x7fb", "a\u202eb"])
def test_episodes_with_control_characters_are_refused(pool: Pool, field: str, text: str) -> None:
    with pytest.raises(InputError, match="control characters"):
        pool.add([replace(toy_episode("c"), **{field: text})])
    assert pool.ids() == ("a", "b")


def test_control_characters_already_in_a_pool_are_escaped_when_shown(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recap.pool.schema.check_episode", lambda episode: None)
    odd = replace(toy_episode(f"c{ESCAPE}"), task=ESCAPE, attributes={"note": ESCAPE})
    pool.add([odd])
    for words in (
        ("ls", pool.uri),
        ("ls", pool.uri, "--version", "4"),
        ("show", pool.uri, odd.id),
        ("diff", pool.uri, "3"),
        ("stats", pool.uri),
        ("stats", pool.uri, "--json"),
    ):
        shown = CliRunner().invoke(commands, list(words), standalone_mode=False)
        assert shown.exception is None
        assert not {"\x1b", "\x07"} & set(shown.output), words
        assert "\\x1b[2J" in shown.output or "\\u001b[2J" in shown.output
