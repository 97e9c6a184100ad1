"""A policy answers prompts: in this process with transformers, or behind an OpenAI-compatible URL.

Both give ``samples`` completions a prompt, in the order of the prompts, and both can be held to a JSON Schema. A call
depends on its arguments alone: not on the global random state, and not on how prompts are batched.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, Protocol, get_args

import torch
from openai import OpenAI, OpenAIError
from pydantic import BaseModel, Field, ValidationError
from transformers import PreTrainedModel

from envsim.api import Message
from trainer.checkpoint import load, stop_tokens
from trainer.decoding import decode, encode, uniforms
from trainer.grammar import GrammarRows, Grammars
from trainer.spec import Frozen, ModelRef

FinishReason = Literal["stop", "length"]
_CANARY = "ok-7f3"


class Completion(Frozen):
    """``tokens`` counts what was generated, the stop token included; ``prompt_tokens`` the prompt as rendered."""

    text: str
    prompt_tokens: int = Field(ge=0)
    tokens: int = Field(ge=0)
    finish_reason: FinishReason


class _Message(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int = Field(ge=0, strict=True)
    completion_tokens: int = Field(ge=0, strict=True)


class _Answer(BaseModel):
    """What a server's answer must have; what it has besides is of no interest."""

    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


class PolicyError(RuntimeError):
    """A policy cannot answer: the request is impossible or the server failed."""


class Policy(Protocol):
    """Anything that answers prompts."""

    def generate(
        self,
        prompts: Sequence[list[Message]],
        *,
        max_new_tokens: int,
        temperature: float,
        samples: int = 1,
        seed: int = 0,
        schema: dict[str, Any] | None = None,
    ) -> list[list[Completion]]:
        """``samples`` completions of each prompt, in the order of the prompts; temperature 0 is greedy."""
        ...


class TransformersPolicy:
    """A checkpoint in this process, in float32, on one device."""

    def __init__(
        self,
        ref: ModelRef,
        *,
        device: str = "cpu",
        threads: int | None = None,
        batch_size: int = 128,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Load the checkpoint.

        ``threads`` sets torch's intra-op threads for the whole process; None leaves them. ``batch_size`` counts rows
        decoded together.

        Raises:
            CheckpointError: the checkpoint cannot be loaded.
        """
        if threads is not None:
            torch.set_num_threads(threads)
        self.ref = ref
        self.batch_size = batch_size
        model, self._tokenizer = load(ref, device=device)
        self._stops = stop_tokens(model, self._tokenizer)
        self._loaded: PreTrainedModel | None = model
        self._template = dict(chat_template_kwargs or {})
        self._grammars: Grammars | None = None

    def generate(
        self,
        prompts: Sequence[list[Message]],
        *,
        max_new_tokens: int,
        temperature: float,
        samples: int = 1,
        seed: int = 0,
        schema: dict[str, Any] | None = None,
    ) -> list[list[Completion]]:
        """See `Policy.generate`. Rows are sorted by prompt length, so a batch carries little padding."""
        if not prompts:
            return []
        encoded = encode(self._tokenizer, prompts, self._template)
        rows = [(index, sample) for index in range(len(prompts)) for sample in range(samples)]
        draws = uniforms(len(rows), max_new_tokens, seed) if temperature > 0 else None
        order = sorted(range(len(rows)), key=lambda row: len(encoded[rows[row][0]]))
        tokens: list[list[int]] = [[] for _ in rows]
        for start in range(0, len(order), self.batch_size):
            batch = order[start : start + self.batch_size]
            distinct = list(dict.fromkeys(rows[row][0] for row in batch))
            place = {index: position for position, index in enumerate(distinct)}
            decoded = decode(
                self._model,
                [encoded[index] for index in distinct],
                [place[rows[row][0]] for row in batch],
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                stop_tokens=self._stops,
                pad_token=self._tokenizer.pad_token_id,
                draws=None if draws is None else draws[batch],
                constraint=None if schema is None else self._constraint(schema, len(batch)),
            )
            for row, ids in zip(batch, decoded, strict=True):
                tokens[row] = ids
        completions = self._completions(tokens, [len(encoded[index]) for index, _ in rows])
        return [completions[start : start + samples] for start in range(0, len(rows), samples)]

    def close(self) -> None:
        """Let go of the model, and of the memory that torch keeps on a GPU, so that a training process finds it free.

        A closed policy answers no more; closing twice does nothing.
        """
        if self._loaded is None:
            return
        device = self._loaded.device
        self._loaded = self._grammars = None
        # Modules and their hooks refer to each other in circles.
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()

    @property
    def _model(self) -> PreTrainedModel:
        if self._loaded is None:
            raise PolicyError(f"the policy of {self.ref.path} is closed; load it again")
        return self._loaded

    def _constraint(self, schema: dict[str, Any], rows: int) -> GrammarRows:
        if self._grammars is None:
            self._grammars = Grammars(self._tokenizer, self._model.config.vocab_size, self._stops)
        return self._grammars.rows(schema, rows)

    def _completions(self, tokens: Sequence[list[int]], prompt_tokens: Sequence[int]) -> list[Completion]:
        texts = self._tokenizer.batch_decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return [
            Completion(
                text=text,
                prompt_tokens=length,
                tokens=len(ids),
                finish_reason="stop" if ids and ids[-1] in self._stops else "length",
            )
            for text, ids, length in zip(texts, tokens, prompt_tokens, strict=True)
        ]


class OpenAIPolicy:
    """A model behind an OpenAI-compatible server such as vLLM."""

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str = "none",
        concurrency: int = 16,
        timeout: float = 600.0,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """``timeout`` in seconds a request; ``chat_template_kwargs`` go to servers that know the field, e.g. vLLM."""
        self.model = model
        self._client = OpenAI(base_url=base_url, api_key=api_key, timeout=timeout)
        self._concurrency = concurrency
        self._extra = {"chat_template_kwargs": chat_template_kwargs} if chat_template_kwargs else {}

    def check(self) -> None:
        """Ask a question whose natural answer the schema forbids.

        Raises:
            PolicyError: the server does not answer, or ignores the constraint.
        """
        schema = {
            "type": "object",
            "properties": {"answer": {"enum": [_CANARY]}},
            "required": ["answer"],
            "additionalProperties": False,
        }
        question: list[Message] = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
        [[completion]] = self.generate([question], max_new_tokens=32, temperature=0.0, schema=schema)
        # A small model may fill up on the whitespace that a grammar allows; what it wrote must still be of the grammar.
        written, expected = "".join(completion.text.split()), json.dumps({"answer": _CANARY}, separators=(",", ":"))
        if not written or not expected.startswith(written):
            raise PolicyError(
                f"the server ignores response_format json_schema: asked for {_CANARY!r}, got {completion.text!r}; "
                "start it with structured outputs enabled"
            )

    def generate(
        self,
        prompts: Sequence[list[Message]],
        *,
        max_new_tokens: int,
        temperature: float,
        samples: int = 1,
        seed: int = 0,
        schema: dict[str, Any] | None = None,
    ) -> list[list[Completion]]:
        """See `Policy.generate`. One request a completion, so that token counts are exact; seeds go up by row.

        Raises:
            PolicyError: a request failed.
        """
        rows = [prompt for prompt in prompts for _ in range(samples)]

        def ask(row: int) -> Completion:
            return self._ask(rows[row], max_new_tokens, temperature, seed + row, schema)

        with ThreadPoolExecutor(self._concurrency) as pool:
            completions = list(pool.map(ask, range(len(rows))))
        return [completions[start : start + samples] for start in range(0, len(rows), samples)]

    def _ask(
        self, prompt: list[Message], max_new_tokens: int, temperature: float, seed: int, schema: dict[str, Any] | None
    ) -> Completion:
        request: dict[str, Any] = {
            "model": self.model,
            "messages": prompt,
            "max_tokens": max_new_tokens,
            # Both explicit: a server otherwise takes them from the checkpoint's generation_config.json.
            "temperature": temperature,
            "top_p": 1.0,
            "seed": seed,
        }
        if schema is not None:
            request["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": schema, "strict": True},
            }
        try:
            raw = self._client.chat.completions.with_raw_response.create(**request, extra_body=self._extra)
        except OpenAIError as error:
            raise PolicyError(
                f"the server at {self._client.base_url} failed for model {self.model!r}: {_line(error)}"
            ) from error
        answer = self._read(raw.content)
        choice = answer.choices[0]
        if choice.finish_reason not in get_args(FinishReason):
            raise PolicyError(f"finish reason {choice.finish_reason!r} from the server; expected stop or length")
        if answer.usage is None:
            raise PolicyError(
                f"the server at {self._client.base_url} reports no usage for model {self.model!r}; expected "
                "prompt_tokens and completion_tokens; use a server that counts tokens"
            )
        return Completion(
            text=choice.message.content or "",
            prompt_tokens=answer.usage.prompt_tokens,
            tokens=answer.usage.completion_tokens,
            finish_reason=choice.finish_reason,
        )

    def _read(self, body: bytes) -> _Answer:
        # By hand, because the client builds its objects from any JSON without a look at it.
        try:
            return _Answer.model_validate_json(body)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the body"
            raise PolicyError(
                f"the server at {self._client.base_url} does not answer as a chat completion for model {self.model!r}: "
                f"{where}: {_line(first['msg'])}; it begins {body[:80]!r}"
            ) from error


def _line(what: object) -> str:
    text = " ".join(str(what).split())
    return text if len(text) <= 400 else text[:397] + "..."
