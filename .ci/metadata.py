"""A release's links: to the address in REPOSITORY_URL, so that no name is written down here.

Without that variable, a build has no `urls`, and the README stays as it is.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Links(MetadataHookInterface):
    """Sets `urls`, and the README with links that also work on the page of a package index."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add both to the metadata."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        if address := os.environ.get("REPOSITORY_URL", ""):
            tree = f"{address}/%s/v{metadata['version']}/"
            text = re.sub(r"(?<=\]\()(?!\w+:|#)", tree % "blob", text)
            text = re.sub(r'(?<=src=")(?!\w+:)', tree % "raw", text)
            metadata["urls"] = {
                "Repository": address,
                "Documentation": f"{tree % 'blob'}README.md#documents",
                "Changelog": f"{tree % 'blob'}CHANGELOG.md",
                "Issues": f"{address}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
