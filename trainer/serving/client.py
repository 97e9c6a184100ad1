"""A policy behind an OpenAI-compatible server such as vLLM, ours or somebody else's."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, get_args

from openai import APIConnectionError, APIStatusError, APITimeoutError, OpenAI, OpenAIError
from pydantic import BaseModel, Field, ValidationError
from tenacity import Retrying, retry_if_exception, sleep_using_event, stop_after_attempt, stop_when_event_set
from tenacity.wait import wait_exponential

from envsim.api import Message
from trainer.grammar import ebnf
from trainer.policy import Completion, FinishReason, PolicyError
from trainer.serving.settings import Constraint

TRIES = 5
"""Of a request whose connection fails, 7.5 s in all; a server that answers, whatever it says, is not asked again."""
_FIRST_WAIT = 0.5
_CANARY = "ok-7f3"


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


def request_seed(seed: int, sample: int) -> int:
    """The seed of one request, in [0, 2^31): far from those of its neighbours, whose prompts may be the same."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{sample}".encode()).digest()[:4], "big") >> 1


class OpenAIPolicy:
    """One model of one server."""

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str = "none",
        concurrency: int = 16,
        timeout: float = 600.0,
        limit: str = "the limit",
        chat_template_kwargs: dict[str, Any] | None = None,
        constraint: Constraint = "json_schema",
        fate: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Prepare; nothing is sent.

        Args:
            base_url: such as ``http://127.0.0.1:8000/v1``.
            model: its name there.
            api_key: sent with every request.
            concurrency: requests under way at a time.
            timeout: seconds for one answer; a request that takes longer fails and is not sent again.
            limit: what sets the timeout, as an error names it.
            chat_template_kwargs: for servers that know the field, e.g. vLLM.
            constraint: how a schema is sent.
            fate: what is known of the server's end, asked when a request fails; None if nothing is.
        """
        self.model = model
        self._client = OpenAI(base_url=base_url, api_key=api_key, timeout=timeout, max_retries=0)
        self._timeout = timeout
        self._limit = limit
        self._concurrency = concurrency
        self._extra = {"chat_template_kwargs": chat_template_kwargs} if chat_template_kwargs else {}
        self._constraint = constraint
        self._fate = fate

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
            how = "response_format json_schema" if self._constraint == "json_schema" else "structured_outputs.grammar"
            raise PolicyError(
                f"the server at {self._client.base_url} ignores {how}: asked for {_CANARY!r}, got "
                f"{completion.text!r}; start it with structured outputs enabled"
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
        """See `Policy.generate`. One request a completion, so that token counts are exact.

        Raises:
            PolicyError: a request failed.
        """
        seeds = range(seed, seed + len(prompts))
        given = self.stream(
            prompts, seeds, max_new_tokens=max_new_tokens, temperature=temperature, samples=samples, schema=schema
        )
        answers = dict(given)
        return [answers[index] for index in range(len(prompts))]

    def stream(
        self,
        prompts: Sequence[list[Message]],
        seeds: Sequence[int],
        *,
        max_new_tokens: int,
        temperature: float,
        samples: int = 1,
        schema: dict[str, Any] | None = None,
    ) -> Generator[tuple[int, list[Completion]], None, None]:
        """See `StreamingPolicy.stream`. Raises PolicyError if a request fails; what is under way is waited for."""
        given_up = threading.Event()
        pool = ThreadPoolExecutor(self._concurrency)
        shape: dict[str, Any] = {
            "model": self.model,
            "max_tokens": max_new_tokens,
            # Both explicit: a server otherwise takes them from the checkpoint's generation_config.json.
            "temperature": temperature,
            "top_p": 1.0,
        }
        bound, extra = self._bound(schema)
        try:
            rows = {
                pool.submit(
                    self._ask,
                    {**shape, **bound, "messages": prompt, "seed": request_seed(seed, sample)},
                    extra,
                    given_up,
                ): (index, sample)
                for index, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True))
                for sample in range(samples)
            }
            found: dict[int, dict[int, Completion]] = {}
            for done in as_completed(rows):
                index, sample = rows[done]
                own = found.setdefault(index, {})
                own[sample] = done.result()
                if len(own) == samples:
                    yield index, [own[place] for place in range(samples)]
                    del found[index]
        finally:
            given_up.set()
            pool.shutdown(cancel_futures=True)

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def _bound(self, schema: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
        if schema is None:
            return {}, self._extra
        if self._constraint == "grammar":
            return {}, {**self._extra, "structured_outputs": {"grammar": ebnf(schema)}}
        named = {"name": "answer", "schema": schema, "strict": True}
        return {"response_format": {"type": "json_schema", "json_schema": named}}, self._extra

    def _ask(self, request: dict[str, Any], extra: dict[str, Any], given_up: threading.Event) -> Completion:
        retrying = Retrying(
            retry=retry_if_exception(self._worth_another_try),
            wait=wait_exponential(multiplier=_FIRST_WAIT),
            stop=stop_after_attempt(TRIES) | stop_when_event_set(given_up),
            sleep=sleep_using_event(given_up),
            reraise=True,
        )
        try:
            raw = retrying(self._client.chat.completions.with_raw_response.create, **request, extra_body=extra)
        except OpenAIError as error:
            raise PolicyError(self._failure(error)) from error
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

    def _worth_another_try(self, error: BaseException) -> bool:
        unreached = isinstance(error, APIConnectionError) and not isinstance(error, APITimeoutError)
        return unreached and self._fate() is None

    def _failure(self, error: OpenAIError) -> str:
        if (fate := self._fate()) is not None:
            return fate
        where = f"the server at {self._client.base_url}"
        if isinstance(error, APITimeoutError):
            return f"{where} gave no answer of model {self.model!r} within {self._timeout:g} s; raise {self._limit}"
        if isinstance(error, APIConnectionError):
            cause = error.__cause__ or error
            return f"{where} cannot be reached for model {self.model!r}, tried {TRIES} times: {_line(cause)}"
        if isinstance(error, APIStatusError) and not isinstance(error.body, dict):
            return (
                f"{where} answered with status {error.status_code} and no JSON; is it OpenAI-compatible? expected a "
                "URL such as http://127.0.0.1:8000/v1"
            )
        return f"{where} failed for model {self.model!r}: {_line(error)}"

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
