"""Which tower of a teacher is distilled: the only one, or the one that the user names where both differ."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import adiabat
from adiabat.config.distillation import AblateSettings
from adiabat.config.reader import checked
from adiabat.core.errors import ConfigError
from adiabat.core.progress import Watch
from adiabat.distillation.ablation import _fit
from adiabat.models.model_paths import require_side
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder, side_of
from tests.commands import lines
from tests.refused import refused
from tests.tiny import save_tiny, tiny_dual, tiny_encoder

TEXTS = [
    {"_id": f"t{number}", "text": f"text {number} about {'abcdefgh'[number % 8] * 4}"} for number in range(24)
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tuned pair, whose query tower is of seed 1 and whose document tower of seed 0; each as a model of its
    own; and texts.
    """
    monkeypatch.chdir(tmp_path)
    save_tiny(tmp_path / "pair", shared=False)
    for side, seed in (("query", 1), ("document", 0)):
        save_tiny(tmp_path / f"only {side}", seed=seed)
    lines(tmp_path / "texts.jsonl", TEXTS)
    return tmp_path


def table_of(folder: str) -> np.ndarray:
    return load_file(Path(folder) / "model.safetensors")["embeddings"]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("tower", ["query", "document"])
def test_a_static_model_is_of_the_tower_that_was_named(tower: str) -> None:
    result = adiabat.distill_static("pair", "static", dims=4, tower=tower)
    adiabat.distill_static(f"only {tower}", "alone", dims=4)
    np.testing.assert_array_equal(table_of("static"), table_of("alone"))
    assert result.title == f"A static model of the {tower} tower of pair"


@pytest.mark.usefixtures("here")
def test_towers_that_differ_are_not_chosen_between() -> None:
    facts = "query or document for pair", "got none; ", 'tower="query"', 'tower="document"'
    with refused(ConfigError, "static.tower must be ", *facts):
        adiabat.distill_static("pair", "static", dims=4)
    assert not Path("static").exists()
    student = {"steps": 1, "batch_size": 4, "validation_fraction": 0.2}
    with refused(ConfigError, "distill.tower must be ", *facts):
        adiabat.distill_fit(["only query", "pair"], "only query", "fitted", texts="texts.jsonl", **student)
    parallel = [{"en": row["text"], "de": f"Text {number}"} for number, row in enumerate(TEXTS)]
    lines(Path("parallel.jsonl"), parallel)
    with refused(ConfigError, "distill.tower must be ", *facts):
        adiabat.distill_multilingual("pair", "only query", "bridged", parallel="parallel.jsonl", **student)


@pytest.mark.usefixtures("here")
def test_saved_towers_are_compared_by_their_files_before_they_are_loaded() -> None:
    with refused(ConfigError, "static.tower must be query or document for pair"):
        require_side("pair", None, setting="static.tower")
    save(DualEncoder(tiny_encoder(), tiny_encoder(), "alike"), Path("alike"))
    assert Path("alike", "query_0_Transformer", "model.safetensors").exists()
    for model, chosen in (
        ("pair", "query"),
        ("only query", None),
        ("alike", None),
        (adiabat.load("pair"), None),
    ):
        require_side(model, chosen, setting="static.tower")


def test_equal_towers_need_no_choice() -> None:
    model = tiny_dual()
    apart = DualEncoder(model.query, tiny_encoder(), "equal weights")
    other = tiny_dual(shared=False)
    assert [one.alike for one in (model, apart, other)] == [True, True, False]
    assert side_of(apart, None, usual="document", setting="static.tower") == "document"
    assert side_of(other, "query", usual="document", setting="static.tower") == "query"


def test_the_steps_of_an_ablation_learn_from_one_tower() -> None:
    for tower in (None, "query", "document"):
        static = {} if tower is None else {"tower": tower}
        ablate = {"suite": "s.toml", "out": "o", "texts": ["texts.jsonl"]}
        settings = checked(AblateSettings, {"ablate": ablate, "static": static})
        assert _fit("teacher", settings, Path("student"), Path("out")).distill.tower == tower


@pytest.mark.usefixtures("here")
def test_a_store_of_a_model_with_two_towers_says_which_of_them_made_it() -> None:
    notes: list[str] = []
    watch = Watch(notes.append, lambda *_: None)
    exact = {"dtype": "float32", "precision": "fp32"}
    store = adiabat.embed("pair", "texts.jsonl", "store", progress=watch, **exact)
    assert "pair has two towers: its document tower encodes the documents" in notes
    texts = [str(row["text"]) for row in TEXTS]
    expected = adiabat.load("only document").encode(texts, side="document", precision="fp32")
    found = store.gather(store.rows([str(row["_id"]) for row in TEXTS]))
    np.testing.assert_allclose(found, expected, atol=1e-5)
