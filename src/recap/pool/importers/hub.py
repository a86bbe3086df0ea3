"""Datasets by their name on the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path

from recap.errors import DatasetError


def fetch(name: str, missing: str) -> Path:
    """The folder of `ORG/NAME[@REVISION]` in the hub's own cache; `missing` says what was looked for here."""
    from huggingface_hub import errors, snapshot_download

    repo, _, revision = name.partition("@")
    try:
        return Path(snapshot_download(repo, repo_type="dataset", revision=revision or None))
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled):
        why = "the hub cannot be reached: connect, or copy the dataset here"
    except errors.GatedRepoError:
        why = "the hub wants you to accept its terms: do so on its page, then hf auth login"
    except errors.RevisionNotFoundError:
        why = f"the hub has no revision '{revision}' of {repo}"
    except errors.RepositoryNotFoundError:
        why = "the hub has no such dataset, or it is private: hf auth login"
    except (OSError, ValueError) as error:
        why = f"fetching it from the hub failed: {' '.join(str(error).split())[:200]}"
    raise DatasetError(f"{missing}; and {why}", code="dataset.hub")
