"""Settings: what is refused, in which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from graph.settings import SettingsError, differences, load_settings


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stagess: 3", "unknown key 'stagess'; did you mean 'stages'"),
        ("acceptance: {alfa: 0.1}", "unknown key 'acceptance.alfa'; did you mean 'alpha'"),
        ("zzz: 1", "known keys: acceptance, approval"),
        ("stages: -1", "stages = -1"),
        ("seed: many", "seed = 'many'"),
        ("approval: sometimes", "'never' or 'always'"),
        ("reward: {valid: -1}", "reward.valid = -1"),
        ("acceptance: {standard_errors: .inf}", "acceptance.standard_errors = inf"),
        ("- 1", "expected a mapping"),
        ("a: [1", "no valid YAML"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as error:
        load_settings(path, {})
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot read the configuration .*nowhere\.yaml"):
        load_settings(tmp_path / "nowhere.yaml", {})


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("stages: 5\nseed: 3\n")
    settings = load_settings(path, {"seed": 9})
    assert (settings.stages, settings.seed) == (5, 9)


def test_differences_name_the_keys() -> None:
    old, new = {"a": 1, "b": {"c": [1], "d": 2}}, {"a": 1, "b": {"c": [2], "d": 2}, "e": 3}
    assert differences(old, new) == ["b.c (was [1], now [2])", "e (was None, now 3)"]
