"""A byte-level BPE tokenizer in which every map cell, map size and whole percentage is one ordinary token.

A percentage is one token so that a column of a table lies at a fixed distance from its row's name.

Text may merge across spaces and punctuation, so that in the JSON of the roles what stands between two decisions is one
token and a decision follows the name that it is about; any text can be encoded, because all 256 bytes
are in the vocabulary. The chat template is part of the tokenizer and needs no remote code.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PAD, SYSTEM, USER, ASSISTANT, END = "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"
SPECIAL = [PAD, SYSTEM, USER, ASSISTANT, END]
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
LARGEST_MAP = 10


def cell_tokens() -> list[str]:
    return [f"({row},{col})" for row in range(LARGEST_MAP) for col in range(LARGEST_MAP)]


def size_tokens() -> list[str]:
    return [f"{n}x{n}" for n in range(3, LARGEST_MAP + 1)]


PERCENTAGES = " ".join(["", *map(str, range(101))])
"""With the space before each number, as tables and JSON have it."""
OFTEN = 5000
"""Repetitions that make the merges of every percentage come before those of words."""


def build_tokenizer(texts: Iterable[str], *, merges: int, context: int) -> PreTrainedTokenizerFast:
    """Learn ``merges`` merges from the texts.

    Args:
        texts: prompts and answers as the model will see them, without chat markup.
        merges: number of BPE merges beyond bytes, cells, sizes and markup.
        context: the model's longest sequence in tokens.
    """
    words = cell_tokens() + size_tokens()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r" ?[0-9]+|\n|[^\n0-9]+?(?= ?[0-9]|\n|$)"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    longest_first = sorted(words, key=len, reverse=True)
    cutter = pre_tokenizers.Split(Regex("|".join(re.escape(word) for word in longest_first)), behavior="removed")
    shown = itertools.chain(texts, itertools.repeat(PERCENTAGES, OFTEN))
    pieces = (piece for text in shown for piece, _ in cutter.pre_tokenize_str(text))
    trainer = trainers.BpeTrainer(
        vocab_size=len(SPECIAL) + len(alphabet) + merges,
        special_tokens=SPECIAL,
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(pieces, trainer=trainer)
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in words])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        bos_token=None,
        unk_token=None,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
