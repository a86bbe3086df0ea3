"""The README as the wheel carries it: no link in it leads to a file that is not there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:)([^)\s]+)\)")


class Readme(MetadataHookInterface):
    """Pictures and pages at `Repository` of [project.urls]; while there is none, their words alone."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the long description."""
        base = metadata.get("urls", {}).get("Repository", "")

        def outside(link: re.Match[str]) -> str:
            picture, words, target = link.groups()
            kind = "raw" if picture else "blob"
            return f"{picture}[{words}]({base}/{kind}/HEAD/{target})" if base else words

        text = LINK.sub(outside, (Path(self.root) / "README.md").read_text("utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
