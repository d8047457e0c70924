"""arxiv-negatives of 60,326 real papers, where they are at hand: neighbours of some of them against scipy,
over all candidates.
"""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon

from adiabat.config.dataset_settings import ArxivSettings
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet
from adiabat.data.table_rows import read_rows
from adiabat.datasets.arxiv import make_arxiv
from adiabat.datasets.neighbours import WORD

PAPERS = Path(__file__).resolve().parents[3] / "shared" / "data" / "arxiv" / "arxiv60k.jsonl.gz"
CHECKED = 20


def sorted_categories(rows: dict[str, list[str]]) -> dict[str, list[str]]:
    sizes = Counter(label for labels in rows.values() for label in labels)
    return {paper: sorted(labels, key=lambda label: (sizes[label], label)) for paper, labels in rows.items()}


def matching(paper: str, lists: dict[str, list[str]]) -> list[str]:
    """Other papers whose lists share the longest beginning."""
    for length in range(len(lists[paper]), -1, -1):
        found = [
            other
            for other, labels in lists.items()
            if other != paper and labels[:length] == lists[paper][:length]
        ]
        if found:
            return found
    raise AssertionError("one paper alone")


def divergence(left: Counter[str], right: Counter[str]) -> float:
    words = sorted(left.keys() | right.keys())
    distance = jensenshannon([left[word] for word in words], [right[word] for word in words])
    return round(float(distance) ** 2, 11)


@pytest.mark.real
def test_real_papers_have_the_neighbours_that_scipy_finds_among_all_candidates(tmp_path: Path) -> None:
    if not PAPERS.is_file():
        pytest.skip(f"{PAPERS.name} is not among the shared data")
    made = make_arxiv(PAPERS, tmp_path / "made", ArxivSettings())
    data = read_examples(made.folder / "test.jsonl.gz")
    assert isinstance(data, ExampleSet)
    found = {example.query_id: example.negatives for example in data.examples}
    assert made.documents == len(found) > 55_000
    rows = [row.values for row in read_rows(PAPERS)]
    # Sizes are those of the whole source, candidates only those that were kept.
    lists = {
        paper: labels
        for paper, labels in sorted_categories({row["id"]: row["categories"] for row in rows}).items()
        if paper in found
    }
    words = {row["id"]: Counter(WORD.findall(row["abstract"].lower())) for row in rows}
    for paper in np.random.default_rng(0).choice(sorted(found), CHECKED, replace=False).tolist():
        near = sorted(
            matching(paper, lists), key=lambda other: (divergence(words[paper], words[other]), other)
        )[:20]
        assert found[paper][:20] == (*near, *near[-1:] * (20 - len(near)))
    told = json.loads((made.folder / "made.json").read_text())
    assert sum("left out" in note for note in told["notes"]) == 2
