"""Second tier: a real static model, fetched from the package index where the script that knows it is to be
had.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import adiabat

SCRIPT = Path(__file__).resolve().parents[3] / "shared" / "models" / "get.py"
TEXTS = [
    *(
        "",
        "  ",
        "a",
        "a",
        "Where does the river rise?",
        "<s> special </s> <unk>",
        "مرحبا",
        "☃ 🦩 ሴ",
        "line\nbreak",
        "river " * 3000,
    ),
    *(" ".join(f"word{number % count}" for number in range(count)) for count in range(1, 200)),
]

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def wordllama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not SCRIPT.exists():
        pytest.skip("the script that fetches real models is not among the shared files")
    folder = tmp_path_factory.mktemp("models") / "wordllama"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "wordllama-256", str(folder)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(
            f"wordllama could not be fetched: {(done.stderr or done.stdout).strip().splitlines()[-1]}"
        )
    return folder


def test_a_real_static_model_gives_the_vectors_of_sentence_transformers(wordllama: Path) -> None:
    theirs = np.asarray(
        SentenceTransformer(str(wordllama), device="cpu").encode(TEXTS, show_progress_bar=False)
    )
    model = adiabat.load(wordllama)
    np.testing.assert_allclose(model.encode(TEXTS, side="query"), theirs, atol=1e-6)
    alone = np.concatenate([model.encode([text], side="document") for text in TEXTS[:20]])
    np.testing.assert_allclose(alone, theirs[:20], atol=1e-6)


def test_without_modules_it_gives_the_vectors_of_model2vec(wordllama: Path, tmp_path: Path) -> None:
    peer = pytest.importorskip("model2vec").StaticModel.from_pretrained(wordllama)
    plain = tmp_path / "wordllama"
    shutil.copytree(wordllama, plain, ignore=shutil.ignore_patterns("modules.json", "1_Normalize"))
    np.testing.assert_allclose(adiabat.load(plain).encode(TEXTS, side="query"), peer.encode(TEXTS), atol=2e-6)
