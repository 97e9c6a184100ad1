"""Files that people write: read whole, or refused in one line that names the file."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsim.documents import DocumentError, parse_json, parse_yaml, read_json, read_yaml


def test_plain_data_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("a: [1, 2.5, true]\nb: {c: text}\n")
    assert read_yaml(file) == {"a": [1, 2.5, True], "b": {"c": "text"}}
    file.write_text("")
    assert read_yaml(file) is None
    file.write_text('{"a": 1}')
    assert read_json(file) == {"a": 1}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe\x00", "no UTF-8 text"),
        (b"a: [1", "no valid YAML"),
        (b"a: 1\na: 2", "written twice"),
        (b"? [1]\n: 2", "no plain value"),
        (b"a: 2001-99-99", "no valid YAML"),
        (b"a: " + b"9" * 6000, "no valid YAML"),
        (b"[" * 900 + b"]" * 900, "nested more than"),
        (b"#" * (5 * 2**20), "bytes, expected at most"),
        (b"a: !!python/object:os.system x", "no valid YAML"),
    ],
)
def test_a_broken_file_is_one_line_that_names_it(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "broken.yaml"
    file.write_bytes(content)
    with pytest.raises(DocumentError, match=words) as caught:
        read_yaml(file)
    assert "broken.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["missing", "folder", "x" * 300, "nul\0"])
def test_what_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(DocumentError, match="cannot read"):
        read_yaml(tmp_path / name)


def test_deep_json_is_refused() -> None:
    with pytest.raises(DocumentError, match="nested too deeply"):
        parse_json("[" * 100_000 + "]" * 100_000, "x.json")


@given(st.text(max_size=200))
def test_no_text_gets_past_the_reader_as_another_error(text: str) -> None:
    for parse in (parse_yaml, parse_json):
        with suppress(DocumentError):
            parse(text, "x")


def test_json_of_people_may_not_say_a_thing_twice() -> None:
    text = '{"a": 1, "b": {"c": 1, "c": 2}}'
    assert parse_json(text, "here") == {"a": 1, "b": {"c": 2}}
    with pytest.raises(DocumentError, match=r"^here is no valid JSON: the key 'c' is written twice"):
        parse_json(text, "here", unique=True)
    with pytest.raises(DocumentError, match="NaN is no JSON number"):
        parse_json("[NaN]", "here", unique=True)
    assert parse_json('{"a": {"b": [1]}}', "here", unique=True) == {"a": {"b": [1]}}
