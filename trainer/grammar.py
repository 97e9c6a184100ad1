"""JSON Schema as a token mask, by xgrammar: whatever is decoded under it parses and fits the schema.

Layout is pinned to one line with ``", "`` and ``": "``: a model cannot spend its tokens on white space, and every
parser and prompt of the project sees the same form.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import torch
import xgrammar
from transformers import PreTrainedTokenizerBase

# In strings of limited length xgrammar forbids of the control characters, which JSON wants escaped, two alone.
_STRING_CHARACTER = r"[^\"\\\r\n]"
_STRING_CHARACTER_WITHOUT_CONTROLS = r"[^\0-\x1f\"\\\r\n]"


class GrammarError(ValueError):
    """A schema that cannot be turned into a grammar."""


def ebnf(schema: dict[str, Any]) -> str:
    """The grammar of a schema as text, for an engine that decodes elsewhere: it allows what `GrammarRows` does.

    Raises:
        GrammarError: xgrammar does not support the schema.
    """
    text = json.dumps(schema)
    try:
        grammar = str(xgrammar.Grammar.from_json_schema(text, any_whitespace=False))
    except RuntimeError as error:
        raise GrammarError(f"the JSON schema cannot be compiled to a grammar: {error}; schema: {text}") from error
    return grammar.replace(_STRING_CHARACTER, _STRING_CHARACTER_WITHOUT_CONTROLS)


class Grammars:
    """Compiles schemas for one tokenizer and remembers them."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: int, stop_tokens: Collection[int]) -> None:
        """``vocabulary`` is the width of the model's logits, which may exceed the tokenizer's."""
        info = xgrammar.TokenizerInfo.from_huggingface(
            tokenizer, vocab_size=vocabulary, stop_token_ids=sorted(stop_tokens)
        )
        self._controls = _control_tokens(info)
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1)
        self._compiled: dict[str, xgrammar.CompiledGrammar] = {}

    def rows(self, schema: dict[str, Any], rows: int) -> GrammarRows:
        """A constraint for so many answers. Raises GrammarError."""
        return GrammarRows(self.compile(schema), self._controls, rows)

    def compile(self, schema: dict[str, Any]) -> xgrammar.CompiledGrammar:
        """The grammar of a schema, compiled once.

        Raises:
            GrammarError: xgrammar does not support the schema.
        """
        text = json.dumps(schema)
        if text not in self._compiled:
            try:
                self._compiled[text] = self._compiler.compile_json_schema(text, any_whitespace=False)
            except RuntimeError as error:
                raise GrammarError(
                    f"the JSON schema cannot be compiled to a grammar: {error}; schema: {text}"
                ) from error
        return self._compiled[text]


class GrammarRows:
    """A `trainer.decoding.Constraint`: one matcher a row, all under the same grammar."""

    def __init__(self, compiled: xgrammar.CompiledGrammar, controls: torch.Tensor, rows: int) -> None:
        """``controls`` are the indices of tokens that no one-line JSON may hold."""
        self._controls = controls
        self._matchers = [xgrammar.GrammarMatcher(compiled) for _ in range(rows)]
        self._vocabulary = compiled.tokenizer_info.vocab_size

    def mask(self, logits: torch.Tensor, rows: Sequence[int]) -> None:
        """Forbid in ``logits`` (len(rows), vocabulary) what the grammar forbids; ended rows stay free."""
        bits = xgrammar.allocate_token_bitmask(len(rows), self._vocabulary)
        for index, row in enumerate(rows):
            if not self._matchers[row].is_terminated():
                self._matchers[row].fill_next_token_bitmask(bits, index)
        xgrammar.apply_token_bitmask_inplace(logits, bits.to(logits.device))
        # xgrammar lets raw control characters into strings of limited length, where JSON wants them escaped.
        logits[:, self._controls.to(logits.device)] = -torch.inf

    def accept(self, row: int, token: int) -> bool:
        matcher = self._matchers[row]
        if not matcher.accept_token(token):
            raise GrammarError(f"token {token} was chosen against the grammar of row {row}")
        return bool(matcher.is_terminated())


def _control_tokens(info: xgrammar.TokenizerInfo) -> torch.Tensor:
    return torch.tensor(
        [index for index, text in enumerate(info.decoded_vocab) if any(byte < 32 for byte in text)], dtype=torch.long
    )
