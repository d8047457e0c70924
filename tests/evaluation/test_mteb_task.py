"""Tasks of mteb: the same score as by mteb's own wrapper of the same model, and scores of every text that
give it again.
"""

import math
import random
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import adiabat.config
from adiabat.config.reader import read_settings
from adiabat.config.tasks import MtebTask, SuiteSettings
from adiabat.core.errors import ConfigError, DataError, MissingDependencyError, ModelError
from adiabat.core.progress import Watch
from adiabat.evaluation import mteb_task as mteb_module
from adiabat.evaluation.mteb_task import MtebEncoder, score_mteb
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.loading import load
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder
from adiabat.stats.samples import TaskScores
from adiabat.stats.statistics import value_of
from tests.tiny import tiny_dual

# mteb warns of its own calls.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The fill_missing parameter is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings(
        "ignore:The `get_sentence_embedding_dimension` method has been renamed:FutureWarning"
    ),
    pytest.mark.filterwarnings("ignore:To copy construct from a tensor:UserWarning:mteb"),
]

PROMPTS = EncoderSettings(max_tokens=128, query_prompt="ask: ", document_prompt="tell: ")


@pytest.fixture(scope="module", autouse=True)
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Imported here and not above: it takes seconds, and mteb makes its folder when it is imported."""
    pytest.importorskip("mteb")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MTEB_CACHE", str(tmp_path_factory.mktemp("mteb")))
        from tests.evaluation import own_tasks

        yield own_tasks


def by_mteb(folder: Path, task: Any) -> float:
    """The main score of a saved model by mteb's own wrapper."""
    import mteb
    from sentence_transformers import SentenceTransformer

    quiet = {"cache": None, "co2_tracker": False, "show_progress_bar": False}
    result = mteb.evaluate(SentenceTransformer(str(folder), device="cpu"), task, **quiet)
    return float(result.task_results[0].get_score())


def both_ways(model: DualEncoder, folder: Path, kind: Any) -> tuple[TaskScores, float]:
    save(model, folder)
    return score_mteb(load(str(folder)), kind()), by_mteb(folder, kind())


def test_the_score_is_that_of_mtebs_own_wrapper_and_the_units_give_it_again(
    tmp_path: Path, tasks: ModuleType
) -> None:
    model = tiny_dual()
    kinds = {
        tasks.Notes: ("query", 16, "nDCG@10"),
        tasks.Reranked: ("query", 16, "AP@1000"),
        tasks.WithoutSelf: ("query", 16, "RR@10"),
        tasks.Alike: ("pair", 41, "Spearman"),
        tasks.Duplicates: ("pair", 30, "average precision"),
        tasks.ByDistance: ("pair", 30, "average precision"),
        tasks.Topics: ("text", 40, "accuracy"),
        tasks.Translations: ("sentence", 12, "F1"),
        tasks.Sets: ("set", 2, "V-measure"),
    }
    for kind, (unit, units, measure) in kinds.items():
        scores, wanted = both_ways(model, tmp_path / kind.__name__, kind)
        name = kind.metadata.main_score
        assert (scores.unit, len(scores.units), scores.samples[0].measure) == (unit, units, measure)
        assert scores.facts[f"mteb's {name}"] == pytest.approx(wanted, abs=1e-5), name
        assert value_of(scores.samples[0])[0] == pytest.approx(wanted, abs=2e-5), name
        assert len(scores.texts) in (0, units)
        assert len(set(scores.units)) == units


@pytest.mark.parametrize("shared", [True, False])
def test_prompts_and_towers_go_to_queries_and_documents_as_with_mtebs_own_wrapper(
    tmp_path: Path, tasks: ModuleType, shared: bool
) -> None:
    model = tiny_dual(settings=PROMPTS, shared=shared)
    for kind in (tasks.Notes, tasks.Reranked):
        scores, wanted = both_ways(model, tmp_path / kind.__name__, kind)
        assert value_of(scores.samples[0])[0] == pytest.approx(wanted, abs=2e-5)
    plain = score_mteb(tiny_dual(shared=shared), tasks.Notes())
    # Were the prompts dropped on both sides above, the scores would be those without any.
    assert plain.samples[0].values.tolist() != score_mteb(model, tasks.Notes()).samples[0].values.tolist()


def test_texts_without_a_role_go_through_the_query_tower(tasks: ModuleType) -> None:
    model = tiny_dual(shared=False, settings=PROMPTS)
    alone = score_mteb(DualEncoder(model.query, model.query), tasks.Alike())
    np.testing.assert_array_equal(score_mteb(model, tasks.Alike()).samples[0].values, alone.samples[0].values)


def test_a_query_is_scored_by_the_formula_and_ties_go_as_mteb_breaks_them(
    tasks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All scores tie, so the ranking is by id from the last: d9, d8, d7, d6, d5, d4, d39, d38, ...
    monkeypatch.setattr(MtebEncoder, "similarity", lambda self, one, other: torch.zeros(len(one), len(other)))
    scores = score_mteb(tiny_dual(), tasks.Notes())
    ranking = sorted((doc_id for doc_id, _, _ in tasks.documents()), reverse=True)
    for query, value in zip(range(16), scores.samples[0].values, strict=True):
        found = [{f"d{query}": 2, f"d{query + 12}": 1}.get(doc_id, 0) for doc_id in ranking[:10]]
        gained = sum(grade / math.log2(place + 2) for place, grade in enumerate(found))
        assert value == pytest.approx(gained / (2 + 1 / math.log2(3)))
    assert scores.samples[0].values.any()
    assert (scores.documents, scores.texts[0], scores.units[0]) == (40, "what of bread 0?", "q0")


def test_parts_are_groups_whose_mean_is_the_score(tasks: ModuleType) -> None:
    scores = score_mteb(tiny_dual(), tasks.Alike(), name="likeness")
    sample = scores.samples[0]
    assert sample.groups is not None
    assert np.bincount(sample.groups).tolist() == [24, 17]
    assert (scores.task, scores.units[0], scores.units[-1]) == ("likeness", "en/test/0", "de/test/16")
    assert scores.texts[0] == "a bread\nthe bread 0"


def test_data_sets_are_the_units_where_mteb_keeps_too_little(tasks: ModuleType) -> None:
    two, one = score_mteb(tiny_dual(), tasks.Linear()), score_mteb(tiny_dual(), tasks.Summaries())
    assert (two.unit, two.samples[0].measure) == ("data set", "cosine_pearson")
    assert two.units == ["en/test", "de/test"]
    assert two.notes[-1].endswith("its 2 data sets are the units")
    assert one.notes[-1].endswith("its one data set is the only unit, too few for a test")
    assert one.facts["mteb's cosine_spearman"] == one.samples[0].values[0]


def test_units_that_do_not_give_mtebs_score_again_are_not_believed(
    tasks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "adiabat.evaluation.mteb_units._mteb_ranking", lambda task, query, scores: dict.fromkeys(scores, 0.0)
    )
    assert score_mteb(tiny_dual(), tasks.Notes()).unit == "data set"


def test_random_states_are_as_before(tasks: ModuleType) -> None:
    model, task = tiny_dual(), tasks.Topics()  # Making a task seeds them too.
    drawn = []
    for measure in (False, True):
        random.seed(3)
        np.random.seed(3)
        torch.manual_seed(3)
        if measure:
            score_mteb(model, task)
        drawn.append((random.random(), np.random.rand(), torch.rand(1).item()))
    assert drawn[0] == drawn[1]


def test_only_the_watch_tells_how_far_it_is(tasks: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    import datasets

    seen: list[tuple[str, int, int]] = []
    score_mteb(tiny_dual(), tasks.Notes(), watch=Watch(progress=lambda *told: seen.append(told)))
    assert capfd.readouterr() == ("", "")
    assert seen[-1] == ("encoding Notes", 39, 39)  # Two of the 40 documents are one text.
    assert not datasets.are_progress_bars_disabled()


def test_data_that_cannot_be_had_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    told = r"^STS15: mteb/sts15-sts must be available .*, got: .*HF_HOME\)$"
    with pytest.raises(DataError, match=told):
        score_mteb(tiny_dual(), "STS15")


def test_a_hub_that_does_not_answer_is_not_asked_again(
    tasks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets
    from huggingface_hub import constants

    seen: list[object] = []
    loaded = tasks.Alike.load_data

    def refuse(address: tuple[str, int], timeout: float) -> None:
        seen.append((address, timeout))
        raise TimeoutError

    def load_data(self: Any) -> None:
        seen.append(datasets.config.HF_HUB_OFFLINE)
        loaded(self)

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(mteb_module, "getproxies", dict)
    for holder in (constants, datasets.config):
        monkeypatch.setattr(holder, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://hub.example:8080")
    monkeypatch.setattr(tasks.Alike, "load_data", load_data)
    score_mteb(tiny_dual(), tasks.Alike())
    assert seen == [(("hub.example", 8080), mteb_module.HUB_SECONDS), True]
    assert not datasets.config.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("SciFct", r"task must be the name of a task of mteb .*, got 'SciFct'; did you mean SciFact\?"),
        ("no such thing at all", r"got 'no such thing at all'; mteb.get_tasks\(\) lists them"),
        ("CIFAR10", "CIFAR10 must be a task of texts alone, got image; choose another"),
        ("CQADupstackRetrieval", "must be a single task, got an aggregate; name its parts: CQADupstack"),
    ],
)
def test_a_name_of_no_single_task_of_texts_is_refused(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        score_mteb(tiny_dual(), name)


def test_without_mteb_its_tasks_are_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(
        MissingDependencyError, match=r"needs the package mteb; .* pip install 'adiabat\[mteb\]'"
    ):
        score_mteb(tiny_dual(), "SciFact")


@pytest.mark.filterwarnings("ignore:An input array is constant")
def test_a_score_that_is_no_number_is_refused(tasks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def ones(self: MtebEncoder, inputs: Any, **_: object) -> np.ndarray:
        return np.ones((sum(len(batch["text"]) for batch in inputs), 4), np.float32)

    monkeypatch.setattr(MtebEncoder, "encode", ones)
    told = "Alike: mteb's cosine_spearman must be a number, got none for 2 data sets: en/test; de/test"
    with pytest.raises(DataError, match=told):
        score_mteb(tiny_dual(), tasks.Alike())


def test_vectors_are_compared_by_what_the_model_was_made_for(tasks: ModuleType) -> None:
    model = tiny_dual(settings=EncoderSettings(max_tokens=128, normalize=False))
    vectors = model.encode(tasks.WORDS, side="query")
    one, other = vectors[:5], vectors[5:10]
    wanted = {
        "cosine": one @ other.T / np.linalg.norm(one, axis=1)[:, None] / np.linalg.norm(other, axis=1),
        "dot": one @ other.T,
        "euclidean": -np.linalg.norm(one[:, None] - other, axis=2),
    }
    for name, scores in wanted.items():
        wrapped = MtebEncoder(DualEncoder(model.query, model.document, "m", {"similarity_fn_name": name}))
        np.testing.assert_allclose(wrapped.similarity(one, other), scores, rtol=1e-4)
        np.testing.assert_allclose(wrapped.similarity_pairwise(one, other), np.diag(scores), rtol=1e-4)
    assert MtebEncoder(model).compared_by == "cosine"


def test_options_that_would_change_embeddings_are_refused(tasks: ModuleType) -> None:
    encoder, batches = MtebEncoder(tiny_dual()), [{"text": tasks.WORDS[:2]}]
    usual = {"task_metadata": tasks.Notes().metadata, "hf_split": "test", "hf_subset": "default"}
    usual |= {"batch_size": 2, "show_progress_bar": False}
    assert encoder.encode(batches, **usual).shape[0] == 2
    with pytest.raises(TypeError, match="precision"):
        encoder.encode(batches, **usual, precision="int8")


def test_a_similarity_that_adiabat_does_not_compute_is_refused() -> None:
    model = tiny_dual()
    odd = DualEncoder(model.query, model.document, "m", {"similarity_fn_name": "manhattan"})
    told = "m: similarity_fn_name in config_sentence_transformers.json must be .*, got manhattan"
    with pytest.raises(ModelError, match=told):
        MtebEncoder(odd)


def test_mteb_knows_every_task_of_the_named_suite() -> None:
    import mteb

    path = Path(adiabat.config.__file__).parent / "suites" / "mteb-eight.toml"
    named = [task.task for task in read_settings(SuiteSettings, path).tasks if isinstance(task, MtebTask)]
    assert [mteb.get_task(name).metadata.name for name in named] == named
    assert len({mteb.get_task(name).metadata.type for name in named}) == len(named) == 8
