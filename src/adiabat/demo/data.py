"""The data inside the package: what the demo tunes on, and what must not get worse by it.

Made by ``scripts/make_demo_data.py`` from CC0 sources; ``files/README.md`` tells what each file is.
"""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path

from adiabat.errors import DataError

DEMO_CORPUS = "corpus.jsonl.zst"
"""5,600 documents: arXiv abstracts without their first sentence, of computer science, mathematics and physics."""

DEMO_TRAIN = "arxiv-cs-train.jsonl.zst"
DEMO_VALIDATION = "arxiv-cs-validation.jsonl.zst"
DEMO_TEST = "arxiv-cs-test.jsonl.zst"
"""Computer science in three parts: first sentences, and five hard negatives each, the hardest first. No paper is in two parts."""

DEMO_RETAIN: Mapping[str, tuple[str, str]] = {
    "arxiv-math": (DEMO_CORPUS, "arxiv-math.jsonl.zst"),
    "arxiv-physics": (DEMO_CORPUS, "arxiv-physics.jsonl.zst"),
    "tico19": ("tico19-corpus.jsonl.zst", "tico19.jsonl.zst"),
}
"""What must not get worse: name to (corpus, examples). The last asks in Spanish and French for English sentences."""

_MANIFEST = "manifest.json"
_MANIFEST_FORMAT = 1


def demo_file(name: str) -> Path:
    """Path of a file of the demo data, checked against the manifest.

    Args:
        name: One of the constants of this module.

    Returns:
        Where it lies.

    Raises:
        DataError: If there is no such file, or its bytes are not those it was published with.
    """
    folder = _folder()
    known = _digests(folder)
    if name not in known:
        raise DataError(f"the demo file must be one of {', '.join(sorted(known))}, got {name}; correct the name")
    path = folder / name
    if not path.is_file():
        raise DataError(f"{path} must exist, got no such file; install adiabat again")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != known[name]:
        raise DataError(f"{path} must have the sha256 {known[name]}, got {found}; install adiabat again")
    return path


def _folder() -> Path:
    # A wheel is unpacked when it is installed, so that the package's files have paths.
    return Path(str(resources.files("adiabat.demo"))) / "files"


@cache
def _digests(folder: Path) -> Mapping[str, str]:
    """File name to sha256."""
    path = folder / _MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["format"] != _MANIFEST_FORMAT:
            raise DataError(f"{path} must be of format {_MANIFEST_FORMAT}, got {manifest['format']}; install adiabat again")
        return {name: facts["sha256"] for name, facts in manifest["files"].items()}
    except (OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise DataError(f"{path} must be the manifest of the demo data, got {error!r}; install adiabat again") from error
