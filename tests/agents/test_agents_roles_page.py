"""docs/roles.md: what it tells people to write works as it stands there, and its tables leave nothing out."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from agents.__main__ import main
from agents.notes import FIELD_TYPES
from agents.places import stage_order
from agents.role_checks import FROM_CODE
from agents.roles import load_roles
from agents.rolespec import PACKAGE
from tools.registry import known_tools

PAGE = (Path(__file__).parents[2] / "docs" / "roles.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def files(section: str) -> dict[str, str]:
    """The files that a section shows, by the name in their first line; a later one of the same name replaces."""
    text = PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    found = {}
    for _, body in re.findall(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        if named := re.match(r"(?:# (\S+)|\{# (\S+) #\})\n", body):
            found[named[1] or named[2]] = body
    return found


def write(folder: Path, section: str) -> Path:
    for name, body in files(section).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body)
    return folder / "mine"


def test_a_role_is_added_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = write(tmp_path, "Add a role")
    assert len(list(tmp_path.rglob("*.*"))) == 5
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "agents").symlink_to(PACKAGE)
    [loop] = [body for kind, body in BLOCKS if kind == "bash" and body.startswith("for style")]
    subprocess.run(["bash", "-euc", loop], cwd=tmp_path, check=True)
    roles = load_roles(mine)
    order = stage_order(roles)
    assert order[:4] == ["evidence", "curriculum_historian", "failure_analyst", "config_designer"]
    assert order[order.index("gates") + 1] == "step_counter"


@pytest.mark.parametrize("section", ["Swap a model", "Add an approval", "Turn a role off"])
def test_each_change_of_a_shipped_role_is_one_small_file(tmp_path: Path, section: str) -> None:
    mine = write(tmp_path, section)
    [file] = mine.iterdir()
    shown = yaml.safe_load(file.read_text())
    roles = load_roles(mine)
    if shown == {"enabled": False}:
        assert file.stem not in roles
    else:
        [(key, value)] = shown.items()
        spec = roles[file.stem].model_dump(mode="json", exclude_none=True)
        assert spec[key] == value


def test_tools_are_offered_as_the_page_says(tmp_path: Path) -> None:
    mine = write(tmp_path, "Offer a tool")
    assert load_roles(mine)["failure_analyst"].limits.max_tool_calls == 4
    [before] = [body for kind, body in BLOCKS if kind == "yaml" and "tools_before" in body]
    [lines] = [body for kind, body in BLOCKS if kind == "jinja" and "tools.read_history" in body]
    (mine / "failure_analyst.yaml").write_text(before)
    for style in ("compact", "full"):
        target = mine / "prompts" / style / "failure_analyst.user.j2"
        target.parent.mkdir(parents=True)
        shutil.copy(PACKAGE / "prompts" / style / "failure_analyst.user.j2", target)
        target.write_text(target.read_text() + lines)
    assert [call.key for call in load_roles(mine)["failure_analyst"].tools_before] == ["read_history", "narrow_maps"]


def test_the_shipped_stage_is_as_shown(capsys: pytest.CaptureFixture[str]) -> None:
    main(["validate"])
    printed = capsys.readouterr().out.splitlines()[:-1]
    assert "\n".join(["$ python -m agents validate", *printed]) in PAGE


def test_the_tables_leave_nothing_out() -> None:
    for name in (*known_tools(), *FROM_CODE):
        assert f"`{name}" in PAGE, name
    for part in FIELD_TYPES:
        assert f"type: {part.model_json_schema()['properties']['type']['const']}" in PAGE
