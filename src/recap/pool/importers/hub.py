"""Datasets by their name on the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path

from recap.errors import DatasetError


def fetch(name: str, missing: str) -> Path:
    """The folder of `ORG/NAME[@REVISION]` in the hub's own cache; `missing` says what was looked for here."""
    repo, _, revision = name.partition("@")
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import (
            GatedRepoError,
            LocalEntryNotFoundError,
            OfflineModeIsEnabled,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )
    except ImportError as error:
        raise DatasetError(
            f"{missing}; for the hub: pip install huggingface_hub", code="dataset.hub"
        ) from error
    try:
        return Path(snapshot_download(repo, repo_type="dataset", revision=revision or None))
    except GatedRepoError:
        why = "the hub wants you to accept its terms: do so on its page, then hf auth login"
    except RevisionNotFoundError:
        why = f"the hub has no revision '{revision}' of {repo}"
    except RepositoryNotFoundError:
        why = "the hub has no such dataset, or it is private: hf auth login"
    except (LocalEntryNotFoundError, OfflineModeIsEnabled):
        why = "the hub cannot be reached: connect, or copy the dataset here"
    except (OSError, ValueError) as error:
        why = f"fetching it from the hub failed: {' '.join(str(error).split())[:200]}"
    raise DatasetError(f"{missing}; and {why}", code="dataset.hub")
