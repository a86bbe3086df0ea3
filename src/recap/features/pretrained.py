"""Loads published networks from a directory or the hub, with checks and a fingerprint."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from recap.errors import DatasetError, InputError, cause

INSTALL = "pip install 'recap-robot[vision]'"
# Only files that are read here, never a pickled checkpoint.
HUB_FILES = [
    *("config.json", "model*.safetensors", "model.safetensors.index.json"),
    *("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "*.model"),
]
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "sentencepiece.bpe.model", "spiece.model", "tokenizer.model"),
)
# Entries of config.json that do not affect what the network computes.
UNUSED_CONFIG = {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version"}


def optional_module(name: str, what: str) -> Any:
    """Import a package of the `vision` extra; an InputError says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(f"{what} needs {name}, which is not installed: {INSTALL}") from error


def find_model(path_or_name: str | Path, what: str, files: Sequence[str] = HUB_FILES) -> Path:
    """The directory of a model: on disk, in the hub's cache, or downloaded (`org/name@revision`).

    Args:
        files: patterns of the files to download.
    """
    given = str(path_or_name)
    directory = Path(given).expanduser()
    name, _, revision = given.partition("@")
    if directory.is_dir():
        return directory
    if directory.exists():
        raise InputError(f"{what} '{given}' is a file: give the directory that holds its config.json")
    if not name or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise InputError(f"{what} '{given}' does not exist: give a model directory or a hub name")
    hub = optional_module("huggingface_hub", what)
    try:
        return Path(hub.snapshot_download(name, revision=revision or None, allow_patterns=list(files)))
    except (OSError, ValueError) as error:
        errors = hub.errors
        if isinstance(error, errors.GatedRepoError):
            why = "the hub asks you to accept its licence first: do so on its page, then `hf auth login`"
        elif isinstance(error, errors.RepositoryNotFoundError):
            why = "the hub has no such model, or it is private: check the name"
        elif isinstance(error, errors.RevisionNotFoundError):
            why = f"the hub has no revision '{revision}' of it: check what stands after the @"
        elif isinstance(error, errors.LocalEntryNotFoundError):
            why = "the hub cannot be reached and the model was not downloaded before: give a local directory"
        else:
            why = cause(error)
        raise InputError(f"{what} '{given}' is no directory here, and {why}") from error


def read_config(directory: Path, kinds: Sequence[str], what: str) -> dict[str, Any]:
    """Read config.json and check that its `model_type` is one of `kinds`; empty: any."""
    file = directory / "config.json"
    try:
        config = json.loads(file.read_text("utf-8"))
    except FileNotFoundError as error:
        raise DatasetError(f"{directory} holds no config.json: it is not a {what}") from error
    except (OSError, ValueError) as error:
        raise DatasetError(f"{file} cannot be read: {cause(error)}") from error
    kind = config.get("model_type") if isinstance(config, dict) else None
    if not isinstance(kind, str) or (kinds and kind not in kinds):
        raise DatasetError(f"{directory} is not a {what}: its model_type is {kind!r}")
    return {key: value for key, value in config.items() if key not in UNUSED_CONFIG}


def _weight_files(directory: Path) -> list[Path]:
    """The weight files that transformers will read: one file, or the shards that the index lists."""
    single, index = directory / "model.safetensors", directory / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if not index.is_file():
        raise DatasetError(f"{directory} holds no model.safetensors: other weight formats are not read")
    try:
        names = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DatasetError(f"{index} is damaged: it has no weight_map") from error
    return [directory / name for name in sorted(names)]


def digest_weights(directory: Path) -> str:
    """SHA-256 over names, dtypes, shapes and bytes of all weights; independent of the sharding."""
    from safetensors import SafetensorError, safe_open

    torch = optional_module("torch", "weights")
    digest = hashlib.sha256()
    parts: dict[str, Any] = {}  # weight -> file
    # Not cached: a cache keyed by time and size would miss an edit that keeps both.
    with ExitStack() as stack:
        for file in _weight_files(directory):
            try:
                opened = stack.enter_context(safe_open(file, framework="pt"))
            except (OSError, SafetensorError) as error:
                raise DatasetError(f"{file} is damaged: {cause(error)}") from error
            parts |= dict.fromkeys(opened.keys(), opened)
        for name in sorted(parts):
            stored, values = parts[name].get_slice(name), parts[name].get_tensor(name)
            digest.update(json.dumps([name, stored.get_dtype(), stored.get_shape()]).encode())
            digest.update(values.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def digest_tokenizer(directory: Path) -> str:
    """SHA-256 over the files of a tokenizer."""
    digest = hashlib.sha256()
    for file in (directory / name for name in sorted(TOKENIZER_FILES)):
        if file.is_file():
            content = file.read_bytes()
            digest.update(f"{file.name} {len(content)} ".encode() + content)
    return digest.hexdigest()


def digest_settings(settings: Mapping[str, Any]) -> str:
    """SHA-256 of settings; weights are included as their digest."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


class PublishedNetwork:
    """A published network, loaded for inference.

    Args:
        path_or_name: a hub name, or a directory with config.json, safetensors weights and, if `reads`, a
            tokenizer.
        what: a name for errors.
        kinds: allowed values of `model_type`; empty: any encoder.
        class_name: a class of transformers.
        settings: further settings for the fingerprint.
        unused: prefixes of the names of weights that may be missing.
        reads: whether it has a tokenizer.
    """

    def __init__(
        self,
        path_or_name: str | Path,
        what: str,
        kinds: Sequence[str],
        class_name: str,
        settings: Mapping[str, Any],
        *,
        unused: Sequence[str] = (),
        reads: bool = False,
    ) -> None:
        directory = find_model(path_or_name, what)
        config = read_config(directory, kinds, what)
        if config.get("is_encoder_decoder"):
            raise DatasetError(f"{directory} is not a {what}: it also decodes ({config['model_type']})")
        self._torch = optional_module("torch", what)
        facts = {"config": config, "weights": digest_weights(directory), **settings}
        if reads:
            facts["tokenizer"] = digest_tokenizer(directory)
        self.fingerprint = digest_settings(facts)
        self._model = load_model(directory, class_name, unused)
        self._tokenizer: Any = load_tokenizer(directory) if reads else None


def load_model(directory: Path, class_name: str, unused: Sequence[str] = ()) -> Any:
    """Load a network for inference; refuses missing weights, except those with a prefix in `unused`."""
    transformers = optional_module("transformers", class_name)
    with _quietly(transformers):
        model, info = _loaded(
            getattr(transformers, class_name).from_pretrained,
            directory,
            use_safetensors=True,
            dtype="float32",
            output_loading_info=True,
        )
    # transformers would initialise missing weights with random numbers.
    missing = sorted(name for name in info["missing_keys"] if not name.startswith(tuple(unused)))
    if missing:
        raise DatasetError(f"{directory} lacks {len(missing)} weights of {class_name}, such as {missing[0]}")
    return model.eval().requires_grad_(False)


def load_tokenizer(directory: Path) -> Any:
    """Load the tokenizer in the directory of a model."""
    transformers = optional_module("transformers", "tokenizer")
    with _quietly(transformers):
        return _loaded(transformers.AutoTokenizer.from_pretrained, directory)


def _loaded(load: Callable[..., Any], directory: Path, **options: Any) -> Any:
    try:
        return load(str(directory), trust_remote_code=False, local_files_only=True, **options)
    except Exception as error:  # the library raises many types; the remedy is the same
        raise DatasetError(f"{directory} cannot be loaded: {cause(error)}") from error


@contextmanager
def _quietly(transformers: Any) -> Iterator[None]:
    """Turn off progress bars and load reports; missing weights raise an error instead."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
