"""The demo data inside the package: examples to tune on, and tasks that must not get worse.

Made by ``scripts/make_demo_data.py`` from CC0 sources; ``files/README.md`` describes each file. Importing
this module checks every file against the manifest (1.4 MB, a few milliseconds), so that a damaged
installation is one clear DataError.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from adiabat.core.errors import DataError, reraise_unrelated
from adiabat.core.provenance import packaged_folder, require_published

_MANIFEST = "manifest.json"
_MANIFEST_FORMAT = 1


def demo_file(name: str) -> Path:
    """Path of a file of the demo data, checked against the manifest."""
    folder = packaged_folder("datasets")
    digests = _digests(folder)
    if name not in digests:
        raise DataError(
            f"the demo file must be one of {', '.join(sorted(digests))}, got {name}; correct the name"
        )
    return require_published(folder / name, digests[name])


@cache
def _digests(folder: Path) -> Mapping[str, str]:
    """File name to sha256."""
    path = folder / _MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["format"] == _MANIFEST_FORMAT:
            return {name: manifest["files"][name]["sha256"] for name in manifest["files"]}
        fault = f"format {manifest['format']}"
    except (OSError, LookupError, TypeError, json.JSONDecodeError) as error:
        reraise_unrelated(error)
        fault = repr(error)
    raise DataError(
        f"{path} must be the demo data's manifest of format {_MANIFEST_FORMAT}, "
        f"got {fault}; install adiabat again"
    )


DEMO_CORPUS: Path = demo_file("corpus.jsonl.zst")
"""5,600 documents: arXiv abstracts without their first sentence, of computer science, mathematics and
physics."""

DEMO_TRAIN: Path = demo_file("arxiv-cs-train.jsonl.zst")
"""1,800 first sentences of computer science, with five hard negatives each, the hardest first. No paper is in
two splits."""

DEMO_VALIDATION: Path = demo_file("arxiv-cs-validation.jsonl.zst")
"""300 more, for early stopping."""

DEMO_TEST: Path = demo_file("arxiv-cs-test.jsonl.zst")
"""700 more, held out."""

DEMO_RETAIN: Mapping[str, tuple[Path, Path]] = {
    "arxiv-math": (DEMO_CORPUS, demo_file("arxiv-math.jsonl.zst")),
    "arxiv-physics": (DEMO_CORPUS, demo_file("arxiv-physics.jsonl.zst")),
    "tico19": (demo_file("tico19-corpus.jsonl.zst"), demo_file("tico19.jsonl.zst")),
}
"""Tasks that must not get worse: name to (corpus, examples). The last has Spanish and French queries for
English sentences."""
