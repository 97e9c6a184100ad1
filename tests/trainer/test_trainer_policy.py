"""Decoding equals transformers' own, sampling depends on its arguments alone, a schema binds."""

from __future__ import annotations

import json
import weakref
from collections import Counter

import pytest
import torch
import xgrammar
from transformers import GenerationConfig

from trainer.checkpoint import load, load_tokenizer, stop_tokens
from trainer.decoding import decode, encode, uniforms
from trainer.grammar import GrammarError, GrammarRows, Grammars, ebnf
from trainer.policy import PolicyError, TransformersPolicy
from trainer.spec import ModelRef

PROMPTS = [[{"role": "user", "content": text}] for text in ("say 5", "holes (1,2)(0,1)", "a much longer prompt", "x")]
SCHEMA = {
    "type": "object",
    "properties": {
        "op": {"enum": ["up", "down"]},
        "cells": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 2},
        "value": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": ["op", "cells", "value"],
    "additionalProperties": False,
}


@pytest.fixture
def policy(tiny: ModelRef) -> TransformersPolicy:
    return TransformersPolicy(tiny, threads=1)


def test_greedy_tokens_are_those_of_generate(tiny: ModelRef) -> None:
    model, tokenizer = load(tiny)
    prompts = encode(tokenizer, PROMPTS, {})
    stops = stop_tokens(model, tokenizer)
    ours = decode(
        model, prompts, range(4), max_new_tokens=24, temperature=0, stop_tokens=stops, pad_token=tokenizer.pad_token_id
    )
    padded = tokenizer.pad({"input_ids": prompts}, return_tensors="pt")
    settings = GenerationConfig(
        max_new_tokens=24, do_sample=False, pad_token_id=tokenizer.pad_token_id, eos_token_id=sorted(stops)
    )
    theirs = model.generate(**padded, generation_config=settings)[:, padded["input_ids"].shape[1] :].tolist()
    for mine, row in zip(ours, theirs, strict=True):
        assert mine == row[: len(mine)]
        assert len(mine) == 24 or mine[-1] in stops


def test_sampling_follows_the_models_distribution(tiny: ModelRef) -> None:
    model, tokenizer = load(tiny)
    prompts = encode(tokenizer, PROMPTS[:1], {})
    n = 4000
    drawn = decode(
        model,
        prompts,
        [0] * n,
        max_new_tokens=1,
        temperature=0.7,
        stop_tokens=(),
        pad_token=0,
        draws=uniforms(n, 1, seed=3),
    )
    with torch.no_grad():
        expected = torch.softmax(model(torch.tensor(prompts)).logits[0, -1] / 0.7, -1)
    counts = Counter(row[0] for row in drawn)
    top = expected.topk(3).indices.tolist()
    for token in top:
        share, p = counts[token] / n, float(expected[token])
        assert abs(share - p) < 5 * (p * (1 - p) / n) ** 0.5 + 1e-3


def test_results_do_not_depend_on_batching_or_on_the_global_random_state(tiny: ModelRef) -> None:
    wide, narrow = TransformersPolicy(tiny, threads=1), TransformersPolicy(tiny, batch_size=3)
    torch.manual_seed(1)
    first = wide.generate(PROMPTS, max_new_tokens=12, temperature=1.0, samples=3, seed=5)
    state = torch.get_rng_state()
    torch.manual_seed(2)
    assert narrow.generate(PROMPTS, max_new_tokens=12, temperature=1.0, samples=3, seed=5) == first
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)
    assert wide.generate(PROMPTS, max_new_tokens=12, temperature=1.0, samples=3, seed=6) != first


def test_completions_come_in_the_order_of_the_prompts(policy: TransformersPolicy) -> None:
    together = policy.generate(PROMPTS, max_new_tokens=8, temperature=0)
    alone = [policy.generate([prompt], max_new_tokens=8, temperature=0)[0] for prompt in PROMPTS]
    assert together == alone


def test_finish_reason_and_token_count(policy: TransformersPolicy) -> None:
    for [completion] in policy.generate(PROMPTS, max_new_tokens=5, temperature=0):
        assert completion.tokens == 5 or completion.finish_reason == "stop"


def test_prompt_tokens_are_those_of_the_rendered_prompt(policy: TransformersPolicy, tiny: ModelRef) -> None:
    expected = [len(ids) for ids in encode(load_tokenizer(tiny), PROMPTS, {})]
    answers = policy.generate(PROMPTS, max_new_tokens=2, temperature=1.0, samples=2)
    assert [[one.prompt_tokens for one in group] for group in answers] == [[length] * 2 for length in expected]


def test_a_closed_policy_holds_no_model_and_answers_no_more(policy: TransformersPolicy) -> None:
    model = weakref.ref(policy._model)
    policy.generate(PROMPTS[:1], max_new_tokens=2, temperature=0, schema=SCHEMA)
    policy.close()
    policy.close()
    assert model() is None
    with pytest.raises(PolicyError, match=r"is closed; load it again"):
        policy.generate(PROMPTS[:1], max_new_tokens=2, temperature=0)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_schema_binds_even_a_random_model(policy: TransformersPolicy, temperature: float) -> None:
    for completions in policy.generate(
        PROMPTS, max_new_tokens=120, temperature=temperature, samples=2, seed=1, schema=SCHEMA
    ):
        for completion in completions:
            assert completion.finish_reason == "stop"
            data = json.loads(completion.text)
            assert data["op"] in ("up", "down")
            assert 0 <= data["value"] <= 9
            assert json.dumps(data, ensure_ascii=False) == completion.text


def test_the_grammar_as_text_allows_what_the_mask_allows(tiny: ModelRef) -> None:
    model, tokenizer = load(tiny)
    stops = stop_tokens(model, tokenizer)
    grammars, rows = Grammars(tokenizer, model.config.vocab_size, stops), 4 * len(PROMPTS)
    as_text = grammars._compiler.compile_grammar(ebnf(SCHEMA))
    no_mask_besides = torch.tensor([], dtype=torch.long)
    answers = [
        decode(
            model,
            encode(tokenizer, PROMPTS, {}),
            list(range(len(PROMPTS))) * 4,
            max_new_tokens=120,
            temperature=1.0,
            stop_tokens=stops,
            pad_token=tokenizer.pad_token_id,
            draws=uniforms(rows, 120, seed=2),
            constraint=constraint,
        )
        for constraint in (grammars.rows(SCHEMA, rows), GrammarRows(as_text, no_mask_besides, rows))
    ]
    assert answers[0] == answers[1]
    good = '{"op": "up", "cells": ["a"], "value": 1}'
    assert xgrammar.GrammarMatcher(as_text).accept_string(good)
    for bad in (
        good.replace(": ", ":"),
        good.replace(", ", ",  "),
        good.replace('"a"', '"\t"'),
        good.replace("up", "on"),
    ):
        assert not xgrammar.GrammarMatcher(as_text).accept_string(bad), bad


def test_an_impossible_schema_says_so(policy: TransformersPolicy) -> None:
    with pytest.raises(GrammarError, match="cannot be compiled"):
        policy.generate(PROMPTS[:1], max_new_tokens=4, temperature=0, schema={"type": "no such type"})
    with pytest.raises(GrammarError, match="cannot be compiled"):
        ebnf({"type": "no such type"})


def test_sampling_without_draws_is_refused(tiny: ModelRef) -> None:
    model, _ = load(tiny)
    with pytest.raises(ValueError, match="draws of shape"):
        decode(model, [[5, 6]], [0], max_new_tokens=2, temperature=1.0, stop_tokens=(), pad_token=0)
