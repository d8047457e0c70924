"""Tasks of a suite: each kind reads and digests its data before any model is loaded, and scores a model."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np

from adiabat.config.shared import IdForms, MeasureSection, RankingMeasureSection
from adiabat.config.tasks import (
    BitextTask,
    ClassificationTask,
    ClusteringTask,
    LabelledTask,
    MtebTask,
    NliGridTask,
    PairClassificationTask,
    QuestionGridTask,
    RetrievalTask,
    StsTask,
    SuiteSettings,
    TextsTask,
    WordsTask,
)
from adiabat.core.errors import ConfigError, DataError, several
from adiabat.core.progress import Watch
from adiabat.core.text import cut
from adiabat.core.wording import call_of
from adiabat.data.examples import read_examples, source_identity
from adiabat.data.folders import table_name
from adiabat.data.labelled import (
    LabelledTexts,
    read_labelled_pairs,
    read_labelled_texts,
    read_parallel_texts,
    read_scored_pairs,
    require_separable,
)
from adiabat.data.language_grids import read_question_grid, require_every_label, select_languages
from adiabat.data.lines import parted_columns
from adiabat.data.records import Document, ExampleSet, LanguageGridSet, grid_id, text_id
from adiabat.data.sources import Source
from adiabat.evaluation.evaluate_checks import gathering, label_of
from adiabat.evaluation.labels import score_classification, score_clustering
from adiabat.evaluation.language_grid_tasks import score_nli_grid, score_question_grid
from adiabat.evaluation.measured_models import Corpus, CorpusStores, MeasuredModel, TaskCorpus
from adiabat.evaluation.mteb_task import require_task, score_mteb
from adiabat.evaluation.retrieval import score_retrieval
from adiabat.evaluation.similarity import score_bitext, score_pair_classification, score_sts, score_words
from adiabat.stats.samples import TaskScores
from adiabat.store.addressing import address
from adiabat.store.corpus_files import digest_documents
from adiabat.store.vector_store import Store

Score = Callable[[MeasuredModel, CorpusStores, Watch], TaskScores]

VERSION = 2
"""Version of scoring: stored scores of another version are computed again."""


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """One task, read and checked; `sha256` is of its data and settings, and BM25 can do it where `lexical` is
    true.
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
    sections = dict(enumerate(settings.tasks))
    ranked = {number: section for number, section in sections.items() if isinstance(section, RetrievalTask)}
    # Tasks of queries together: those of one corpus share the reading of it.
    loaded = _retrieval_tasks(ranked, settings.measure, faults, watch)
    for number, section in sections.items():
        watch.progress("reading tasks", number, len(sections))
        if number not in ranked:
            with gathering(faults, section):
                loaded[number] = _READERS[type(section)](section, settings.run.seed)
    if faults:
        raise DataError(several(faults))
    tasks = [loaded[number] for number in sections]
    names = [task.name for task in tasks]
    if again := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"tasks must have names of their own, got {', '.join(again)} more than once; give them tasks.name"
        )
    return tasks


def _sha256(content: object) -> str:
    """SHA-256 of anything that JSON can hold, arrays and sets included."""

    def plain(value: object) -> object:
        return value.tolist() if isinstance(value, np.ndarray) else list(value)  # type: ignore[call-overload]

    return hashlib.sha256(
        json.dumps(content, sort_keys=True, default=plain).encode("utf-8", "surrogatepass")
    ).hexdigest()


def _digest(data: Any, section: Any, *further: object) -> str:
    """SHA-256 of data and of the settings that decide scores; names decide nothing."""
    return _sha256([asdict(data), section.model_dump(mode="json", exclude={"name"}), *further])


def _retrieval_tasks(
    sections: Mapping[int, RetrievalTask], measure: RankingMeasureSection, faults: list[str], watch: Watch
) -> dict[int, LoadedTask]:
    """Read queries and corpora to the end, each corpus once for all tasks that share it."""
    examples: dict[int, ExampleSet] = {}
    for number, section in sections.items():
        with gathering(faults, section):
            examples[number] = _examples_of(section)
    asking: dict[Corpus, list[int]] = {}
    for number in examples:
        asking.setdefault(Corpus.of(sections[number]), []).append(number)
    digests: dict[int, tuple[Corpus, str]] = {}
    for corpus, numbers in asking.items():
        watch.progress("reading corpora", len(digests), len(examples))
        missing = {number: _entries(examples[number], sections[number].ids) for number in numbers}
        with gathering(faults, sections[numbers[0]]):
            # One pass over the corpus digests it and finds what each task lacks.
            wanted = [(missing[number], sections[number].ids) for number in numbers]
            digest = digest_documents(_struck_off(corpus.documents(), wanted))
            digests |= dict.fromkeys(numbers, (corpus, digest))
            for number in numbers:
                faults += _lacking(sections[number], examples[number], missing[number], corpus)
    if faults:
        return {}
    loaded = {}
    for number, section in sections.items():
        with gathering(faults, section):
            loaded[number] = _retrieval(section, examples[number], *digests[number], measure)
    return loaded


def _entries(examples: ExampleSet, ids: IdForms) -> dict[str, str]:
    """Every name of a document of the examples: its id, its text, or the id of its text, each with the
    entry.
    """
    entry_of: dict[str, str] = {}
    for example in examples.examples:
        for entry in (*example.positives, *example.negatives):
            entry_of[entry if ids == "exact" else normalize("NFC", entry)] = entry
            if examples.holds_texts is not False:
                entry_of[text_id(entry)] = entry
    return entry_of


def _struck_off(
    documents: Iterator[Document], missing_of: Sequence[tuple[dict[str, str], IdForms]]
) -> Iterator[Document]:
    """Pass documents on, and remove them from the missing ones."""
    for document in documents:
        for names, ids in missing_of:
            doc_id = document.doc_id if ids == "exact" else normalize("NFC", document.doc_id)
            # If examples hold only ids, removing a text that looks like an id is harmless: the store checks
            # again.
            for name in (doc_id, document.text):
                entry = names.pop(name, None)
                if entry is not None:
                    names.pop(entry, None)
                    names.pop(text_id(entry), None)
        yield document


def _lacking(
    section: RetrievalTask, examples: ExampleSet, missing: Mapping[str, str], corpus: Corpus
) -> list[str]:
    """Faults for documents that a corpus lacks, unless they are dropped."""
    absent = set(missing.values())
    if section.missing == "drop" or not absent:
        return []
    lacking: dict[str, str] = {}
    for example in examples.examples:
        for entry in absent.intersection((*example.positives, *example.negatives)):
            lacking.setdefault(entry, f'{example.location or examples.name}: "{cut(entry, limit=60)}"')
    return [
        f"{label_of(section)}: every document must be in the corpus {corpus.source}, it lacks "
        f"{several(lacking.values(), of='documents')}; name the corpus that holds them "
        "(tasks.corpus), or set tasks.missing = drop"
    ]


def _examples_of(section: RetrievalTask) -> ExampleSet:
    """Queries with positives; a language grid is a `DataError`."""
    columns, _ = parted_columns(section.columns.given(), has_corpus=section.corpus is not None)
    examples = read_examples(section.data, split=section.split, columns=columns)
    if not isinstance(examples, ExampleSet):
        raise DataError(
            f"{section.data} must hold queries with positives, got a language grid; "
            f"measure it with {call_of('evaluate')}"
        )
    return examples


def _retrieval(
    section: RetrievalTask,
    examples: ExampleSet,
    documents: Corpus,
    digest: str,
    common: RankingMeasureSection,
) -> LoadedTask:
    """A task of queries; its key follows from queries, corpus, settings and stores."""
    name = section.name or examples.name
    overrides = section.model_dump(include={"report", "drop_same_id"}, exclude_none=True)
    overrides["negatives"] = "store"
    if section.kind == "triplets":
        overrides |= {"negatives": "listed", "depth": MeasureSection().depth}
    measure = MeasureSection().model_copy(update={**common.model_dump(), **overrides})
    # Other vectors of the same model, such as rounded ones, have other scores.
    digests = [Store.open(path).manifest.sha256 for path in section.stores]
    stores = tuple(map(Path, section.stores))
    corpus = TaskCorpus(table_name(documents.source), digest, documents.documents, stores, documents.blank)
    # Line by line: the examples as one text would double their memory.
    queries = hashlib.sha256()
    for example in examples.examples:
        fields = [example.query_id, example.query, example.positives, example.grades, example.negatives]
        queries.update(json.dumps(fields).encode() + b"\n")

    def score(model: MeasuredModel, corpora: CorpusStores, watch: Watch) -> TaskScores:
        system = corpora.system(model, corpus)
        # Read again, so that a suite does not hold the examples of all its tasks at once.
        addressed = address(
            _examples_of(section),
            system.documents,
            missing=section.missing,
            ids=section.ids,
            merge_equal=True,
        )
        scores = score_retrieval(system, addressed, settings=measure, trained=model.trained, watch=watch)
        return replace(scores, task=name)

    settings = section.model_dump(mode="json", exclude={"name", "stores"})
    if section.ids == "exact":
        # Exact ids were the only ones before the setting: what was measured then holds.
        del settings["ids"]
    decisive = measure.model_dump(mode="json", exclude={"resamples", "margin", "margin_absolute", "cluster"})
    sha256 = _sha256([queries.hexdigest(), digest, settings, decisive, *digests])
    return LoadedTask(name, section.data, sha256, score, lexical=True)


def _nli_grid(section: NliGridTask, _: int) -> LoadedTask:
    """A task of sentence pairs in several languages; its hypotheses are its corpus."""
    grid = read_examples(section.data)
    if not isinstance(grid, LanguageGridSet):
        raise DataError(
            f"{section.data} must hold sentence pairs in several languages "
            "(premise, hypothesis, label), got queries; "
            'name such pairs, or write kind = "retrieval"'
        )
    require_every_label(grid, source=section.data)
    selected = replace(select_languages(grid, section.languages), name=section.name or grid.name)

    def documents() -> Iterator[Document]:
        for pair, hypothesis in enumerate(selected.hypotheses):
            for language in selected.languages:
                yield Document(grid_id(pair, language), hypothesis[language])

    corpus = TaskCorpus(table_name(section.data), digest_documents(documents()), documents)

    def score(model: MeasuredModel, corpora: CorpusStores, watch: Watch) -> TaskScores:
        stored = corpora.store(model.towers, corpus)
        return score_nli_grid(model.towers, selected, hypotheses=stored, trained=model.trained, watch=watch)

    return LoadedTask(selected.name, section.data, _digest(selected, section), score)


def _question_grid(section: QuestionGridTask, _: int) -> LoadedTask:
    """A task of questions and paragraphs in several languages, embedded at each scoring."""
    grid = read_question_grid(
        section.data, section.corpus, key=section.key, languages=section.languages, name=section.name
    )

    def score(model: MeasuredModel, _: CorpusStores, watch: Watch) -> TaskScores:
        return score_question_grid(model.towers, grid, watch=watch)

    return LoadedTask(grid.name, section.data, _digest(grid, section), score)


def _of_texts(
    section: TextsTask, data: Any, score: Callable[..., TaskScores], *further: object
) -> LoadedTask:
    """A task of texts without a corpus, which all go through one side of the model; `score` has its data."""
    name = section.name or data.name

    def score_model(model: MeasuredModel, _: CorpusStores, watch: Watch) -> TaskScores:
        return score(model.towers, side=section.side, name=name, watch=watch)

    return LoadedTask(name, section.data, _digest(data, section, *further), score_model)


def _scored_pairs(section: StsTask | WordsTask, _: int) -> LoadedTask:
    """A task of pairs of texts, or of words, with human scores."""
    score, sets = (score_words, section.set) if isinstance(section, WordsTask) else (score_sts, None)
    pairs = read_scored_pairs(
        section.data,
        a=section.a,
        b=section.b,
        score=section.score,
        sets=sets,
        split=section.split,
        where=section.where,
    )
    return _of_texts(section, pairs, partial(score, pairs=pairs))


def _pair_classification(section: PairClassificationTask, _: int) -> LoadedTask:
    """A task of matching and other pairs."""
    pairs = read_labelled_pairs(
        section.data,
        a=section.a,
        b=section.b,
        label=section.label,
        positive=section.positive,
        split=section.split,
        where=section.where,
    )
    return _of_texts(section, pairs, partial(score_pair_classification, pairs=pairs))


def _bitext(section: BitextTask, _: int) -> LoadedTask:
    """A task of sentences and their translations."""
    sentences = read_parallel_texts(
        section.data, a=section.a, b=section.b, split=section.split, where=section.where
    )
    # Version 2 of this kind of scores: Euclidean distances were compared with squared ones.
    return _of_texts(section, sentences, partial(score_bitext, sentences=sentences), 2)


def _labelled_texts(section: LabelledTask) -> LabelledTexts:
    """Texts and labels of `data`."""
    return read_labelled_texts(
        section.data, text=section.text, label=section.label, split=section.split, where=section.where
    )


def _classification(section: ClassificationTask, seed: int) -> LoadedTask:
    """A task of training texts, and of test texts that are none of them."""
    # Addresses may name one table twice, with other columns.
    is_same = Source.of(section.data).path == Source.of(section.test).path and not section.tells_apart
    if is_same and source_identity(section.data, section.split) == source_identity(
        section.test, section.test_split
    ):
        raise ConfigError(
            f"test must hold other rows than the training data {section.data}, "
            f"got {section.test}; name another table"
        )
    training = _labelled_texts(section)
    test = read_labelled_texts(
        section.test,
        text=section.text,
        label=section.label,
        split=section.test_split,
        where=section.test_where,
    )
    # Told while tasks are read, before any model is loaded.
    require_separable(training, test)
    score = partial(
        score_classification,
        training=training,
        test=test,
        per_label=section.per_label,
        regularization=section.regularization,
        seed=seed,
    )
    return _of_texts(section, training, score, asdict(test), seed, version("scikit-learn"))


def _clustering(section: ClusteringTask, seed: int) -> LoadedTask:
    """A task of texts in groups."""
    texts = _labelled_texts(section)
    require_separable(texts)
    score = partial(
        score_clustering, texts=texts, restarts=section.restarts, max_texts=section.most, seed=seed
    )
    return _of_texts(section, texts, score, seed, version("scikit-learn"))


def _mteb(section: MtebTask, _: int) -> LoadedTask:
    """A task of mteb; its data is mteb's, so its key names the version of mteb."""
    require_task(section.task)
    name = section.name or section.task

    def score(model: MeasuredModel, _: CorpusStores, watch: Watch) -> TaskScores:
        return score_mteb(model.towers, section.task, name=name, watch=watch)

    return LoadedTask(name, f"mteb: {section.task}", _sha256([section.task, version("mteb")]), score)


_READERS: Mapping[type, Callable[[Any, int], LoadedTask]] = {
    NliGridTask: _nli_grid,
    QuestionGridTask: _question_grid,
    StsTask: _scored_pairs,
    WordsTask: _scored_pairs,
    PairClassificationTask: _pair_classification,
    BitextTask: _bitext,
    ClassificationTask: _classification,
    ClusteringTask: _clustering,
    MtebTask: _mteb,
}
