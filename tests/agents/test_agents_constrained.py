"""The output schemas and the real decoder agree: what random weights write under a schema has the schema's form."""

from __future__ import annotations

from pathlib import Path

import pytest
from agents_fakes import evidence_of

from agents import teacher
from agents.checks import semantic_checks
from agents.parsing import parse_object
from agents.render import render_messages
from agents.rolespec import RoleSpec
from agents.schemas import GateReport
from agents.structured import output_schema, read_answer
from envsim.api import Environment
from trainer.checkpoint import resolve
from trainer.policy import TransformersPolicy
from trainer.seedling.model import build_model
from trainer.seedling.tokenizer import build_tokenizer

BOUNDS = {"steps_low": 5, "steps_high": 40}


@pytest.fixture(scope="module")
def random_weights(tmp_path_factory: pytest.TempPathFactory) -> TransformersPolicy:
    directory: Path = tmp_path_factory.mktemp("random")
    tokenizer = build_tokenizer(["data_ratio success learnable hopeless mastered"], merges=16, context=1024)
    build_model(tokenizer, seed=0).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return TransformersPolicy(resolve(str(directory)), threads=1)


@pytest.mark.parametrize("name", ["failure_analyst", "config_designer", "safety_critic", "trainer"])
def test_random_weights_write_what_the_schema_says(
    lake: Environment, roles: dict[str, RoleSpec], random_weights: TransformersPolicy, name: str
) -> None:
    role, config = roles[name], lake.default_config()
    seen = evidence_of(lake, (0.6, 0.4, 0.1, 0, 0, 0, 0, 0))
    diagnosis = teacher.diagnose(seen)
    proposal = teacher.propose(seen, diagnosis, lake.knobs(config), None, [])
    report = GateReport(passed=True, findings=[], probe={}, probe_tokens=0)
    values = {"evidence": seen, "diagnosis": diagnosis, "proposal": proposal, "gate_report": report}
    inputs = {**values, "conditions": [], "bounds": BOUNDS}
    messages = render_messages(role, "compact", {key: inputs[key] for key in role.inputs})
    schema = output_schema(role.output_type, lake, config, style="compact", evidence_ids=["e1"], bounds=BOUNDS)
    [completions] = random_weights.generate(
        [messages], max_new_tokens=1500, temperature=1.0, samples=4, seed=1, schema=schema
    )
    finished = [completion.text for completion in completions if completion.finish_reason == "stop"]
    assert finished
    checks = semantic_checks(lake, config, style="compact", evidence=seen, bounds=BOUNDS)
    for text in finished:
        assert list(parse_object(text)) == list(schema["properties"])
        _, errors = read_answer(text, schema, role.output_type, checks)
        # A grammar cannot count: paths may repeat, conditions may come with an approval, and bytes that are no text
        # become more characters than it allowed.
        known = ("twice", "only with verdict", "at most 240 characters")
        assert not [error for error in errors if not any(part in error for part in known)]
