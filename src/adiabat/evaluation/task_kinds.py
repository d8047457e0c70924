"""Tasks of a suite: each kind reads and digests its data before any model is loaded, and scores a model."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from adiabat.config.shared import MeasureSection, RankingMeasureSection
from adiabat.config.tasks import (
    BitextTask,
    ClassificationTask,
    ClusteringTask,
    MtebTask,
    NliGridTask,
    PairClassificationTask,
    QuestionGridTask,
    RetrievalTask,
    StsTask,
    SuiteSettings,
    WordsTask,
)
from adiabat.core.errors import AdiabatError, ConfigError, DataError, several
from adiabat.core.progress import Watch
from adiabat.data.examples import read_examples
from adiabat.data.labelled import (
    ScoredPairs,
    read_labelled_pairs,
    read_labelled_texts,
    read_parallel_texts,
    read_scored_pairs,
    require_separable,
)
from adiabat.data.language_grids import read_question_grid, require_every_label, select_languages
from adiabat.data.records import Document, LanguageGridSet, grid_id
from adiabat.data.table_rows import table_name
from adiabat.evaluation.labels import score_classification, score_clustering
from adiabat.evaluation.language_grid_tasks import score_nli_grid, score_question_grid
from adiabat.evaluation.measured_models import CorpusStores, MeasuredModel, TaskCorpus
from adiabat.evaluation.mteb_task import require_task, score_mteb
from adiabat.evaluation.retrieval import score_retrieval
from adiabat.evaluation.retrieval_data import RetrievalTaskData, read_retrieval_tasks
from adiabat.evaluation.similarity import score_bitext, score_pair_classification, score_sts, score_words
from adiabat.evaluation.systems import BM25System, System
from adiabat.models.towers import DualEncoder
from adiabat.stats.samples import TaskScores
from adiabat.store.corpus_files import digest_documents
from adiabat.store.vector_store import Store

Score = Callable[[MeasuredModel, CorpusStores, Watch], TaskScores]

VERSION = 2
"""Version of scoring: stored scores of another version are computed again."""


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """One task, read and checked.

    Attributes:
        name: Unique among the tasks.
        source: Path or name of its data.
        sha256: Of its data and settings.
        score: Scores a model on it.
        lexical: Whether BM25 can do it.
    """

    name: str
    source: str
    sha256: str
    score: Score
    lexical: bool = False

    def key(self, model: MeasuredModel) -> str:
        """SHA-256 of everything that decides the scores."""
        return _sha256([VERSION, self.sha256, model.key])


def load_tasks(settings: SuiteSettings, watch: Watch) -> list[LoadedTask]:
    """Read all tasks of a suite; all faults are raised together."""
    if not settings.tasks:
        raise ConfigError("tasks must be given, got none; list them under [[tasks]]")
    faults: list[str] = []
    loaded: dict[int, LoadedTask] = {}
    ranked = {number: section for number, section in enumerate(settings.tasks) if isinstance(section, RetrievalTask)}
    with _gathering(faults):
        read = read_retrieval_tasks(list(ranked.values()), watch) if ranked else []
        for number, task in zip(ranked, read, strict=True):
            loaded[number] = _retrieval(task, ranked[number], settings.measure)
    for number, section in enumerate(settings.tasks):
        watch.progress("reading tasks", number, len(settings.tasks))
        if number not in ranked:
            with _gathering(faults, about=f"task {section.name or getattr(section, 'data', '') or getattr(section, 'task', '')}: "):
                loaded[number] = _READERS[type(section)](section, settings.run.seed)
    if faults:
        raise DataError(several(faults))
    tasks = [loaded[number] for number in range(len(settings.tasks))]
    names = [task.name for task in tasks]
    if again := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"tasks must have names of their own, got {', '.join(again)} more than once; give them tasks.name")
    return tasks


@contextmanager
def _gathering(faults: list[str], *, about: str = "") -> Iterator[None]:
    """Collect a fault and continue."""
    try:
        yield
    except AdiabatError as fault:
        faults.append(f"{about}{fault}")


def _sha256(content: object) -> str:
    def plain(value: object) -> object:
        return value.tolist() if isinstance(value, np.ndarray) else list(value)  # type: ignore[call-overload]

    return hashlib.sha256(json.dumps(content, sort_keys=True, default=plain).encode("utf-8", "surrogatepass")).hexdigest()


def _digest(data: Any, section: Any, *further: object) -> str:
    """SHA-256 of data and of the settings that decide scores; names decide nothing."""
    return _sha256([asdict(data), section.model_dump(mode="json", exclude={"name"}), *further])


def _retrieval(task: RetrievalTaskData, section: RetrievalTask, common: RankingMeasureSection) -> LoadedTask:
    overrides = {"measures": section.measures, "drop_same_id": section.drop_same_id}
    listed = {"negatives": "listed", "depth": MeasureSection().depth} if section.kind == "triplets" else {"negatives": "store"}
    overridden = {name: value for name, value in overrides.items() if value is not None}
    measure = MeasureSection().model_copy(update={**common.model_dump(), **overridden, **listed})
    # Other vectors of the same model, such as rounded ones, have other scores.
    digests = [Store.open(path).manifest.sha256 for path in section.stores]
    documents = task.corpus
    stores = tuple(map(Path, section.stores))
    corpus = TaskCorpus(table_name(documents.source), task.corpus_sha256, documents.documents, stores, documents.blank)

    def score(model: MeasuredModel, corpora: CorpusStores, watch: Watch) -> TaskScores:
        system: System | BM25System
        if model.is_bm25:
            system = corpora.bm25(corpus, stemmer=model.stemmer)
            examples = task.addressed(system)
        else:
            system = System(model.towers, corpora.store(model.towers, corpus))
            examples = task.addressed(system.store)
        return replace(score_retrieval(system, examples, settings=measure, trained=model.trained, watch=watch), task=task.name)

    settings = section.model_dump(mode="json", exclude={"name", "stores"})
    decisive = measure.model_dump(mode="json", exclude={"resamples"})
    sha256 = _sha256([task.examples_sha256, task.corpus_sha256, settings, decisive, *digests])
    return LoadedTask(task.name, section.data, sha256, score, lexical=True)


def _nli_grid(section: NliGridTask, _: int) -> LoadedTask:
    grid = read_examples(section.data)
    if not isinstance(grid, LanguageGridSet):
        raise DataError(
            f"{section.data} must hold sentence pairs in several languages (premise, hypothesis, label), got queries; "
            'name such pairs, or write kind = "retrieval"'
        )
    require_every_label(grid, source=section.data)
    selected = replace(select_languages(grid, section.languages), name=section.name or grid.name)

    def documents() -> Iterator[Document]:
        for pair, hypothesis in enumerate(selected.hypotheses):
            yield from (Document(grid_id(pair, language), hypothesis[language]) for language in selected.languages)

    corpus = TaskCorpus(table_name(section.data), digest_documents(documents()), documents)

    def score(model: MeasuredModel, corpora: CorpusStores, watch: Watch) -> TaskScores:
        stored = corpora.store(model.towers, corpus)
        return score_nli_grid(model.towers, selected, hypotheses=stored, trained=model.trained, watch=watch)

    return LoadedTask(selected.name, section.data, _digest(selected, section), score)


def _question_grid(section: QuestionGridTask, _: int) -> LoadedTask:
    grid = read_question_grid(section.data, section.corpus, key=section.key, languages=section.languages, name=section.name)
    return _of_texts(section, grid, lambda model, _, watch: score_question_grid(model, grid, watch=watch))


def _of_texts(section: Any, data: Any, score: Callable[[DualEncoder, str, Watch], TaskScores], *further: object) -> LoadedTask:
    """A task of named data without a corpus."""
    name = section.name or data.name
    return LoadedTask(name, section.data, _digest(data, section, *further), lambda model, _, watch: score(model.towers, name, watch))


def _scored_pairs(section: StsTask | WordsTask, *, sets: str | None = None) -> ScoredPairs:
    return read_scored_pairs(
        section.data, a=section.a, b=section.b, score=section.score, sets=sets, split=section.split, where=section.where
    )


def _of_pairs(section: Any, pairs: Any, score: Callable[..., TaskScores]) -> LoadedTask:
    """A task of pairs of texts, which all go through one side of the model."""
    return _of_texts(section, pairs, lambda model, name, watch: score(model, pairs, side=section.side, name=name, watch=watch))


def _sts(section: StsTask, _: int) -> LoadedTask:
    return _of_pairs(section, _scored_pairs(section), score_sts)


def _words(section: WordsTask, _: int) -> LoadedTask:
    return _of_pairs(section, _scored_pairs(section, sets=section.set), score_words)


def _pair_classification(section: PairClassificationTask, _: int) -> LoadedTask:
    pairs = read_labelled_pairs(
        section.data, a=section.a, b=section.b, label=section.label, positive=section.positive, split=section.split, where=section.where
    )
    return _of_pairs(section, pairs, score_pair_classification)


def _bitext(section: BitextTask, _: int) -> LoadedTask:
    texts = read_parallel_texts(section.data, a=section.a, b=section.b, split=section.split, where=section.where)
    return _of_pairs(section, texts, score_bitext)


def _classification(section: ClassificationTask, seed: int) -> LoadedTask:
    training = read_labelled_texts(section.data, text=section.text, label=section.label, split=section.split, where=section.where)
    test = read_labelled_texts(section.test, text=section.text, label=section.label, split=section.test_split, where=section.test_where)
    require_separable(training, test)

    def score(model: DualEncoder, name: str, watch: Watch) -> TaskScores:
        return score_classification(
            model,
            training,
            test,
            side=section.side,
            name=name,
            per_label=section.per_label,
            regularization=section.regularization,
            seed=seed,
            watch=watch,
        )

    return _of_texts(section, training, score, asdict(test), seed, version("scikit-learn"))


def _clustering(section: ClusteringTask, seed: int) -> LoadedTask:
    texts = read_labelled_texts(section.data, text=section.text, label=section.label, split=section.split, where=section.where)
    require_separable(texts)

    def score(model: DualEncoder, name: str, watch: Watch) -> TaskScores:
        return score_clustering(
            model, texts, side=section.side, name=name, restarts=section.restarts, max_texts=section.most, seed=seed, watch=watch
        )

    return _of_texts(section, texts, score, seed, version("scikit-learn"))


def _mteb(section: MtebTask, _: int) -> LoadedTask:
    require_task(section.task)
    name = section.name or section.task

    def score(model: MeasuredModel, _: CorpusStores, watch: Watch) -> TaskScores:
        return score_mteb(model.towers, section.task, name=name, watch=watch)

    return LoadedTask(name, f"mteb: {section.task}", _sha256([section.task, version("mteb")]), score)


_READERS: Mapping[type, Callable[[Any, int], LoadedTask]] = {
    NliGridTask: _nli_grid,
    QuestionGridTask: _question_grid,
    StsTask: _sts,
    WordsTask: _words,
    PairClassificationTask: _pair_classification,
    BitextTask: _bitext,
    ClassificationTask: _classification,
    ClusteringTask: _clustering,
    MtebTask: _mteb,
}
