"""Published networks from a directory or the hub: found, checked, fingerprinted and loaded in one way."""

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
# Only what is read here: never a pickled checkpoint that lies beside it.
HUB_FILES = [
    *("config.json", "model*.safetensors", "model.safetensors.index.json"),
    *("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "*.model"),
]
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "sentencepiece.bpe.model", "spiece.model", "tokenizer.model"),
)
# Entries of config.json that say who wrote it, not what it computes.
UNUSED_CONFIG = {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version"}


def optional_module(name: str, what: str) -> Any:
    """A package of the `vision` extra, imported only now, or an InputError that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(f"{what} needs {name}, which is not installed: {INSTALL}") from error


def find_model(path_or_name: str | Path, what: str, files: Sequence[str] = HUB_FILES) -> Path:
    """The directory of a model that is on disk, in the hub's cache, or on the hub (`org/name@revision`).

    Args:
        files: patterns of what is fetched from the hub.
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
    """config.json of a model whose `model_type` is one of `kinds`; any will do when none is named."""
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
    """One file, or the shards that the index names: what transformers will read."""
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
    """sha256 over names, dtypes, shapes and bytes of all weights, however they are split into files."""
    from safetensors import SafetensorError, safe_open

    torch = optional_module("torch", "weights")
    digest = hashlib.sha256()
    parts: dict[str, Any] = {}  # weight -> the file that has it
    # Read every time: a cache keyed by time and size would miss an edit that keeps both.
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
    """sha256 over the files a tokenizer is made from."""
    digest = hashlib.sha256()
    for file in (directory / name for name in sorted(TOKENIZER_FILES)):
        if file.is_file():
            content = file.read_bytes()
            digest.update(f"{file.name} {len(content)} ".encode() + content)
    return digest.hexdigest()


def digest_settings(settings: Mapping[str, Any]) -> str:
    """sha256 of settings, among which a model's weights stand as their own digest."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


class PublishedNetwork:
    """A published network that describes or finds something, ready to run.

    Args:
        path_or_name: a directory with config.json, weights as safetensors and perhaps a tokenizer, or a hub
            name.
        what: it should be, for errors.
        kinds: of network that it may be, by `model_type`; none: any that only encodes.
        class_name: of transformers.
        settings: what else decides its numbers, by name, for the fingerprint.
        unused: beginnings of the names of weights that may be missing.
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
    """A network ready to run; a missing weight is an error, unless its name starts with one of `unused`."""
    transformers = optional_module("transformers", class_name)
    with _quietly(transformers):
        model, info = _loaded(
            getattr(transformers, class_name).from_pretrained,
            directory,
            use_safetensors=True,
            dtype="float32",
            output_loading_info=True,
        )
    # transformers fills what is missing with random numbers and goes on; a description must not.
    missing = sorted(name for name in info["missing_keys"] if not name.startswith(tuple(unused)))
    if missing:
        raise DatasetError(f"{directory} lacks {len(missing)} weights of {class_name}, such as {missing[0]}")
    return model.eval().requires_grad_(False)


def load_tokenizer(directory: Path) -> Any:
    """The tokenizer that lies beside a model."""
    transformers = optional_module("transformers", "tokenizer")
    with _quietly(transformers):
        return _loaded(transformers.AutoTokenizer.from_pretrained, directory)


def _loaded(load: Callable[..., Any], directory: Path, **options: Any) -> Any:
    try:
        return load(str(directory), trust_remote_code=False, local_files_only=True, **options)
    except Exception as error:  # whatever the library raises on a damaged directory, the remedy is the same
        raise DatasetError(f"{directory} cannot be loaded: {cause(error)}") from error


@contextmanager
def _quietly(transformers: Any) -> Iterator[None]:
    """No progress bars or load reports on the terminal; what matters in them is raised instead."""
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
