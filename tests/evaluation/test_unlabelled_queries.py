"""Queries that nobody judged beside a judged set: which ones count, and what they do to its verdict."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from adiabat.config.shared import EvaluateSettings
from adiabat.core.errors import DataError
from adiabat.core.progress import SILENT
from adiabat.core.ragged import Ragged
from adiabat.data.records import Document
from adiabat.data.text_files import QueryLog
from adiabat.data.text_hashes import TrainedTexts
from adiabat.evaluation.evaluate import Dataset, evaluate_datasets, read_dataset
from adiabat.evaluation.unlabelled_queries import apart_from
from adiabat.models.towers import DualEncoder
from adiabat.results.evaluation_result import DatasetResult
from adiabat.stats.possible_losses import TopLists, possible_losses
from adiabat.store.addressing import AddressedSet
from adiabat.store.build import build_store
from adiabat.store.search import search
from adiabat.store.vector_store import Store
from tests.evaluation.given_ranker import asked
from tests.evaluation.world import lines
from tests.tiny import tiny_dual, tiny_encoder

TEXTS = [f"document {number} on {'abcdefg'[number % 7] * 4}" for number in range(30)]
LOG = QueryLog("log.txt", [f"asked {number} about {'stuvwxyz'[number % 8]}" for number in range(400)])
SETTINGS = EvaluateSettings.model_validate({"measure": {"resamples": 100, "margin_absolute": 0.02}})


@pytest.fixture(scope="module")
def start() -> DualEncoder:
    return tiny_dual(seed=1)


@pytest.fixture(scope="module")
def moved(start: DualEncoder) -> DualEncoder:
    return DualEncoder(tiny_encoder(seed=2), start.document, "moved")


@pytest.fixture(scope="module")
def still(start: DualEncoder) -> DualEncoder:
    """Another query tower than that of the start, whose rankings are the same."""
    query = tiny_encoder(seed=1)
    with torch.no_grad():
        query.load_state_dict(start.query.state_dict())
        weight = next(weight for weight in query.parameters() if weight.dim() > 1)
        weight[-1, -1] += 1e-6
    return DualEncoder(query, start.document, "still")


@pytest.fixture(scope="module")
def store(start: DualEncoder, tmp_path_factory: pytest.TempPathFactory) -> Store:
    documents = [Document(f"d{number}", text) for number, text in enumerate(TEXTS)]
    about = {"source": "corpus", "encoder_name": "tiny", "keep_texts": True}
    folder = tmp_path_factory.mktemp("store") / "store"
    return build_store(start, lambda: iter(documents), folder, **about).store


def questions(count: int = 40) -> AddressedSet:
    texts = [f"question {number} {'wxyz'[number % 4]}" for number in range(count)]
    return asked([[number % len(TEXTS)] for number in range(count)], queries=texts, name="set")


def measured(
    model: DualEncoder, baseline: DualEncoder, store: Store, log: QueryLog | None = LOG, **options
) -> DatasetResult:
    examples = options.pop("examples", questions())
    result = evaluate_datasets(
        model,
        baseline,
        [Dataset(store, examples, "target", unlabelled=log)],
        settings=options.pop("settings", SETTINGS),
        title="A title",
        command="adiabat evaluate",
        watch=SILENT,
        **options,
    )
    return result.datasets[0]


def test_a_set_on_which_no_query_moved_is_not_worse(
    still: DualEncoder, start: DualEncoder, store: Store
) -> None:
    alone, beside = measured(still, start, store, None), measured(still, start, store)
    assert (alone.main_change().verdict, alone.unlabelled) == ("undecided", 0)
    assert (beside.main_change().verdict, beside.unlabelled) == ("not worse", len(LOG.texts))
    # A query has found its document at rank 1, and 400 others show that it stays there.
    assert beside.main_change().loss_bound == pytest.approx(1 - 0.05 ** (1 / 400))


def test_each_measure_is_bounded_by_its_own_losses(
    moved: DualEncoder, start: DualEncoder, store: Store
) -> None:
    """The lists by a search of its own give the losses that the samples hold."""
    report = ["nDCG@3", "P@10", "AP"]
    settings = EvaluateSettings.model_validate({"measure": {"resamples": 100, "report": report}})
    kept = {}

    def keep(scored) -> None:
        kept[scored.side] = scored.scores

    measured(moved, start, store, settings=settings, save_scores=keep)
    # Saved scores know nothing of further queries.
    assert [sample.possible_losses for sample in kept["model"].samples] == [None] * 5
    lists = []
    for model in (start, moved):
        hits = search(store, model.encode(list(LOG.texts), side="query", precision="fp32"), 11)
        lists.append(TopLists(hits.rows, hits.scores))
    losses = possible_losses("nDCG@3", *lists, depth=100)
    assert losses.shape == (400,)
    assert 0 < losses.mean() < 1


def test_judged_and_trained_queries_do_not_count() -> None:
    judged = questions(5)
    texts = ["QUESTION 1  x", "new", "trained", "newer"]
    kept, notes = apart_from(judged, texts, [None, TrainedTexts.of(["trained"])])
    assert kept == ["new", "newer"]
    assert [word for word in ("2\N{NO-BREAK SPACE}queries", "left out") if word not in notes[0]] == []
    # Fewer than the judged ones can bound nothing.
    assert "bound nothing" in notes[1]
    with pytest.raises(DataError, match="neither judged nor trained on"):
        apart_from(judged, texts[:1], [])


def test_queries_that_are_documents_are_not_ranked_among_themselves(
    moved: DualEncoder, start: DualEncoder, store: Store
) -> None:
    """A document with the id and text of its query is left out of its ranking, and so is that of the text of
    a query without an id.
    """
    judged = replace(
        questions(),
        query_ids=[f"d{(number + 1) % 30}" if number < 30 else f"q{number}" for number in range(40)],
    )
    judged = replace(
        judged,
        queries=[TEXTS[(number + 1) % 30] if number < 30 else f"question {number}" for number in range(40)],
    )
    log = QueryLog("log", [*TEXTS, *LOG.texts])
    found = measured(moved, start, store, log, examples=judged)
    # All of them are judged: only the others are left.
    assert found.unlabelled == len(LOG.texts)


def test_listed_candidates_and_language_grids_are_refused(
    moved: DualEncoder, start: DualEncoder, store: Store, tmp_path: Path
) -> None:
    listed = replace(questions(), negatives=Ragged.of([[(number + 3) % 30] for number in range(40)]))
    with pytest.raises(DataError, match="ranks its whole store"):
        measured(moved, start, store, examples=listed)
    precise = EvaluateSettings.model_validate({"measure": {"resamples": 100, "report": ["AP"]}})
    with pytest.raises(DataError, match="nDCG, RR"):
        measured(moved, start, store, settings=precise)
    rows = [
        {"pair_id": number, "label": label, "premise": {"en": "a"}, "hypothesis": {"en": f"b {label}"}}
        for number in range(2)
        for label in ("entailment", "neutral", "contradiction")
    ]
    lines(tmp_path / "grid.jsonl", rows)
    with pytest.raises(DataError, match="language grid"):
        read_dataset(
            store, str(tmp_path / "grid.jsonl"), role="target", settings=SETTINGS, split=None, unlabelled=LOG
        )


def test_only_a_set_that_decides_as_a_whole_is_bounded(
    still: DualEncoder, start: DualEncoder, store: Store
) -> None:
    """Five of its queries were trained on: the others may be of another kind than the further ones."""
    trained = [TrainedTexts.of(questions().queries[:5]), None]
    found = measured(still, start, store, trained=trained)
    assert (found.unlabelled, found.left_out, found.main_change().verdict) == (0, 5, "undecided")
    assert [note for note in found.notes if "other queries" in note]


def test_lists_of_all_runs_count(
    still: DualEncoder, start: DualEncoder, moved: DualEncoder, store: Store
) -> None:
    """A second run that moves everything leaves a loss possible."""
    one = measured(still, start, store).main_change()
    both = measured(still, start, store, further=[moved]).main_change()
    assert one.loss_bound is not None
    assert both.loss_bound is not None
    assert both.loss_bound > one.loss_bound


def test_no_more_of_them_than_judged_queries_are_not_even_ranked(
    still: DualEncoder, start: DualEncoder, store: Store
) -> None:
    found = measured(still, start, store, QueryLog("log", LOG.texts[:40]))
    assert (found.unlabelled, found.main_change().verdict) == (0, "undecided")
    assert [note for note in found.notes if "bound nothing" in note]
