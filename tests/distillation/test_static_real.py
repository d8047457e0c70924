"""Second tier: static models of real teachers, beside model2vec's: the same vectors, and the same scores on
STS.
"""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from model2vec import StaticModel
from model2vec.distill import distill
from scipy.stats import spearmanr

import adiabat
from adiabat.config.distillation import DistillStaticSettings
from adiabat.config.reader import checked
from adiabat.models.loading import load
from adiabat.models.model_paths import demo_model_folder
from adiabat.models.static import unknown_id
from adiabat.models.towers import DualEncoder

SHARED = Path(__file__).resolve().parents[3] / "shared"
FEW_WORDS = r"(?!▁?[a-z]{1,3}$|▁$|<)"
"""Leaves the shortest of e5's 250,000 tokens: how many pass decides nothing but the time."""

pytestmark = pytest.mark.real


def fetched(name: str, folder: Path) -> Path:
    script = SHARED / "models" / "get.py"
    if not script.exists():
        pytest.skip("the script that fetches real models is not among the shared files")
    done = subprocess.run([sys.executable, str(script), name, str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{name} could not be fetched: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
    return folder


def sentence_pairs() -> tuple[list[str], list[str], list[float]]:
    path = SHARED / "data" / "similarity" / "stsb_multi.jsonl.gz"
    if not path.exists():
        pytest.skip("STS-b is not among the shared data")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [row for row in map(json.loads, file) if (row["lang"], row["split"]) == ("en", "test")]
    return [row["a"] for row in rows], [row["b"] for row in rows], [row["score"] for row in rows]


@pytest.mark.parametrize(
    ("name", "without"), [("all-MiniLM-L6-v2", r"\[unused\d+\]"), ("multilingual-e5-small-q4", FEW_WORDS)]
)
def test_vectors_and_scores_are_those_of_model2vec(tmp_path: Path, name: str, without: str) -> None:
    teacher = demo_model_folder() if name == "all-MiniLM-L6-v2" else fetched(name, tmp_path / "teacher")
    settings = checked(
        DistillStaticSettings,
        {
            "static": {"reduction": {"dims": 256}, "dtype": "float32", "without": without},
            "run": {"device": "cpu"},
        },
    )
    adiabat.distill_static(str(teacher), tmp_path / "ours", settings=settings)
    options = {
        "pca_dims": 256,
        "sif_coefficient": 1e-4,
        "token_remove_pattern": without,
        "quantize_to": "float32",
        "device": "cpu",
    }
    peer = distill(str(teacher), **options)
    found = StaticModel.from_pretrained(tmp_path / "ours")
    assert found.tokens == peer.tokens
    tables = [one.embedding * (1.0 if one.weights is None else one.weights[:, None]) for one in (found, peer)]
    # A token that is not known is left out of a text by both; ours weighs nothing for other libraries too.
    rows = [row for row in range(len(found.tokens)) if row != unknown_id(found.tokenizer)]
    signs = np.sign((tables[0][rows] * tables[1][rows]).sum(axis=0))
    np.testing.assert_allclose(tables[0][rows] * signs, tables[1][rows], atol=1e-3 * np.abs(tables[1]).max())
    left, right, scores = sentence_pairs()
    ours = load(tmp_path / "ours")
    told = [
        spearmanr(cosines(*(encode(texts) for texts in (left, right))), scores).statistic
        for encode in (ours_of(ours), peer.encode)
    ]
    assert told[0] == pytest.approx(told[1], abs=1e-3)
    assert told[0] > 0.3


def ours_of(model: DualEncoder) -> Callable[[list[str]], np.ndarray]:
    return lambda texts: model.encode(texts, side="query")


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (one * other).sum(axis=1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
