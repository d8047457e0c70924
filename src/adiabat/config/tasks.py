"""Settings of ``adiabat evaluate --suite``, ``adiabat compare`` and ``adiabat space``; the suites that come
with adiabat.
"""

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from adiabat.config.faults import Need, shown
from adiabat.config.section import DropSameId, Section, Text, Texts
from adiabat.config.shared import (
    DataSection,
    EmbedDataSection,
    EncoderTables,
    FusionSection,
    RankingEncoderSection,
    RankingMeasureSection,
    RankingTables,
    ReportSection,
    RunTables,
)
from adiabat.core.errors import ConfigError
from adiabat.core.wording import option

# --- Tasks ---

Towers = Literal["query", "document"]


class NamedTask(Section):
    """Settings that all tasks share."""

    name: Text | None = None
    """Name in tables; None takes the name of the data."""


class DataTask(NamedTask):
    """Settings of tasks on data of their own."""

    data: Text
    """Data of the task: a BEIR folder, a file or a hub data set."""


class TaskSection(DataTask, DataSection, EmbedDataSection):
    """One of ``[[tasks]]``: queries, and the corpus that each model embeds."""

    corpus: Text | None = None
    """Corpus of documents; None takes the corpus of a BEIR folder, or the document texts in the examples."""
    corpus_split: Text | None = None
    """Split of the corpus, if it is a hub data set."""

    needs: ClassVar[tuple[Need, ...]] = (Need("corpus_split", "corpus"),)
    """Only a separate corpus has a split."""


class RetrievalTask(TaskSection):
    """Retrieval: rank the whole corpus for each query, or (``triplets``) only the documents that its example
    lists.
    """

    kind: Literal["retrieval", "triplets"]
    report: Annotated[Texts, Field(min_length=1)] | None = None
    """Measures of the report; None takes ``measure.report``. The first one decides the verdict of a retrieval
    task, PND of triplets."""
    stores: Texts = ()
    """Existing stores of the same corpus; a model reads the store that its document tower built instead of
    embedding the corpus."""
    drop_same_id: DropSameId | None = None
    """Leave the document with the query's id out of its ranking; None takes ``measure.drop_same_id``."""

    needs = (
        *TaskSection.needs,
        Need("drop_same_id", "kind", ("retrieval",), "whose queries rank only listed documents"),
    )
    """Triplets rank only listed documents."""


class GridTask(DataTask):
    """Settings of tasks in several languages."""

    languages: Texts = ()
    """Languages to compare; empty takes those that all rows and files have."""


class NliGridTask(GridTask):
    """Labelled sentence pairs in several languages: entailed sentences should be closer than neutral and
    contradicting ones.
    """

    kind: Literal["nli_grid"]


class QuestionGridTask(GridTask):
    """Questions of each language, answered from the paragraphs of each language; `data` has the questions, a
    column for each language.
    """

    kind: Literal["question_grid"]
    corpus: Text
    """Paragraphs: a column for each language."""
    key: Text = "para"
    """Column with the name of the paragraph, in both files: questions have that of the paragraph that answers
    them."""


class FilteredTask(DataTask):
    """Settings of tasks that read a table."""

    split: Text | None = None
    """Split of a hub data set."""
    where: Mapping[str, str] = {}
    """Column values that select rows of `data`, such as ``{ lang = "de", split = "test" }``."""


class TextsTask(FilteredTask):
    """Settings of tasks that embed all texts with the same tower."""

    side: Towers = "query"
    """Tower and prompt that embed the texts."""


class PairsTask(TextsTask):
    """Settings of tasks on pairs of texts, in the columns `a` and `b`."""

    a: Text = "a"
    """Column of the first text."""
    b: Text = "b"
    """Column of the second text."""


class ScoredPairsTask(PairsTask):
    """Settings of tasks on pairs of texts with human scores."""

    score: Text = "score"
    """Column of the human score."""


class StsTask(ScoredPairsTask):
    """Semantic textual similarity: Spearman's rank correlation with human scores of pairs of texts."""

    kind: Literal["sts"]


class WordsTask(ScoredPairsTask):
    """Word similarity: Spearman's rank correlation with human scores of pairs of words, averaged over
    sets.
    """

    kind: Literal["words"]
    set: Text | None = "set"
    """Column with the name of the set; None treats all pairs as one set."""


class PairClassificationTask(PairsTask):
    """Pair classification: average precision of the similarity at finding matching pairs of texts."""

    kind: Literal["pair_classification"]
    label: Text = "label"
    """Column of the label."""
    positive: Text = "1"
    """Label of matching pairs."""


class BitextTask(TextsTask):
    """Bitext mining: each sentence should find its translation among all, in both directions."""

    kind: Literal["bitext"]
    a: Text
    """Column of one language, such as `en`."""
    b: Text
    """Column of the other language, such as `de`."""


class LabelledTask(TextsTask):
    """Settings of tasks on texts with labels."""

    text: Text = "text"
    """Column of the text."""
    label: Text = "label"
    """Column of the label."""


class ClassificationTask(LabelledTask):
    """Classification: logistic regression on the embeddings of `data` (training) predicts the labels of
    `test`.
    """

    kind: Literal["classification"]
    test: Text
    """Table of test texts."""
    test_split: Text | None = None
    """Split of `test`, if it is a hub data set."""
    test_where: Mapping[str, str] = {}
    """Column values that select rows of `test`. If `test` and `data` are the same table, set a column of
    `where` to another value here."""
    per_label: PositiveInt | None = None
    """Number of training texts per label, drawn at random; None takes all."""
    regularization: PositiveFloat = 1.0
    """Inverse strength C of the L2 regularization in the logistic regression."""

    @property
    def tells_apart(self) -> bool:
        """Whether training and test rows differ in a column, also where they are of one table."""
        return any(self.test_where.get(column, value) != value for column, value in self.where.items())

    def faults(self) -> Iterator[tuple[str, str]]:
        """Training and test rows are different."""
        # A classifier that is tested on its training rows knows their labels.
        if (self.data, self.split) == (self.test, self.test_split) and not self.tells_apart:
            fault = "must select other rows than where does, since test and data are the same table"
            advice = "give a column of where another value here, or set test_split"
            yield (
                "test_where",
                f"{fault}, got {shown(self.test_where)} beside where = {shown(self.where)}; {advice}",
            )


class ClusteringTask(LabelledTask):
    """Clustering: V-measure of k-means with as many clusters as labels."""

    kind: Literal["clustering"]
    restarts: PositiveInt = 10
    """Restarts of k-means; the clustering with the lowest inertia is used."""
    most: PositiveInt | None = None
    """Maximum number of texts, drawn at random; None takes all."""


class MtebTask(NamedTask):
    """A task of the mteb library, run by mteb's own evaluator."""

    kind: Literal["mteb"]
    task: Text
    """Name of the task in mteb."""


AnyTask = Annotated[
    RetrievalTask
    | NliGridTask
    | QuestionGridTask
    | StsTask
    | WordsTask
    | PairClassificationTask
    | BitextTask
    | ClassificationTask
    | ClusteringTask
    | MtebTask,
    Field(discriminator="kind"),
]


# --- Suites and comparisons ---


class ModelSection(Section):
    """One of ``[[models]]``: a model, its name, and encoder settings."""

    name: Text
    """Name in tables."""
    model: Text
    """A hub name, a directory, a job, ``demo``, ``bm25``, or ``bm25:LANGUAGE`` for BM25 with stemming."""
    runs: Texts = ()
    """Further models that differ from `model` only in their seed; values are means over all of them, and
    intervals cover seeds and units."""
    encoder: RankingEncoderSection = RankingEncoderSection()
    fuse: FusionSection = FusionSection()
    """What its rankings are fused with, in retrieval and triplets."""


class SuiteSection(Section):
    """``[suite]``: title, baseline and stores."""

    name: Text = "suite"
    """Title of the page."""
    baseline: Text | None = None
    """Name of the model that others are compared with; None compares all models with the best one of each
    task."""
    stores: Text | None = None
    """Directory for the vectors of corpora, which several suites can share; None takes one inside the output
    directory."""


class RunsMeasureSection(ReportSection):
    """``[measure]`` of a comparison of score files or TREC runs."""

    ties: Literal["relevant_last", "trec_eval"] = "relevant_last"
    """Order of documents with equal scores in a TREC run: relevant ones last, or as in trec_eval, by
    descending document id with scores compared in 32 bits."""
    task: Text | None = None
    """Name of the task of a TREC run, to match score files; None takes the name of the judgements file."""
    units: Literal["same", "common"] = "same"
    """If one side lacks queries of the other: stop and count them (same), or compare on the queries that both
    have (common)."""


class TaskTables(Section):
    """All settings of a verb that measures models on tasks."""

    measure: RankingMeasureSection = RankingMeasureSection()
    """Measures of all tasks; `depth` and `drop_same_id` apply to retrieval."""
    tasks: Annotated[tuple[AnyTask, ...], Field(strict=False)] = ()
    """Tasks on which every model is measured."""


class CompareSettings(RunTables):
    """All settings of ``adiabat compare``."""

    measure: RunsMeasureSection = RunsMeasureSection()


class SuiteSettings(RankingTables, RunTables, TaskTables):
    """All settings of ``adiabat evaluate --suite``; those of the encoder belong to models on the command
    line.
    """

    suite: SuiteSection = SuiteSection()
    models: Annotated[tuple[ModelSection, ...], Field(strict=False)] = ()

    def faults(self) -> Iterator[tuple[str, str]]:
        """Names are unique."""
        yield from repeated_names("tasks", [task.name for task in self.tasks])
        yield from repeated_names("models", [model.name for model in self.models])


def repeated_names(key: str, names: Sequence[str | None]) -> Iterator[tuple[str, str]]:
    """The fault of names that occur twice; tables could not tell them apart. None is skipped."""
    if again := [name for name, count in Counter(filter(None, names)).items() if count > 1]:
        yield (
            key,
            f"must have names of their own, got {', '.join(map(shown, again))} more than once; rename them",
        )


# --- Suites that come with adiabat ---

ENDING = ".toml"


def suite_file(name: str) -> Path:
    """The TOML file of a suite, by path or by the name of a packaged suite."""
    if Path(name).exists() or name.endswith(ENDING):
        return Path(name)
    known = named_suites()
    if name in known:
        return known[name]
    # A slip in a name is told with the name that was meant, and a path with all names.
    near = difflib.get_close_matches(name, known, n=1)
    advice = (
        f"did you mean {near[0]}?" if near else f"the suites that come with adiabat are {', '.join(known)}"
    )
    raise ConfigError(
        f"{option('suite')} must be a TOML file or a suite that comes with adiabat, got {name}; {advice}"
    )


def named_suites() -> dict[str, Path]:
    """The packaged suites, by name."""
    folder = Path(str(resources.files("adiabat.config") / "suites"))
    return {path.stem: path for path in sorted(folder.glob(f"*{ENDING}"))}


# --- The space of vectors ---

Sampled = Annotated[int, Field(ge=20, le=5_000)]
"""At most 5,000, because the matrix of all pairs is held in memory (200 MB)."""


class MapSection(Section):
    """``[space.map]``: a t-SNE map of both towers."""

    queries: PositiveInt = 500
    """Number of queries on the map, each with its positive, drawn from the sample."""
    perplexity: Annotated[PositiveFloat, Field(ge=2)] = 30.0
    """Perplexity of t-SNE, roughly the number of neighbours considered per point."""


class SpaceSection(Section):
    """``[space]``: sample sizes and statistics."""

    queries: Sampled = 2_000
    """Maximum number of queries in the sample, drawn at random, each with one positive."""
    documents: Sampled = 2_000
    """Maximum number of documents in the sample, drawn at random from the store."""
    pairs: Annotated[int, Field(ge=100, le=1_000_000)] = 10_000
    """Number of random pairs of a query with another query, and with the positive of another query."""
    folds: Annotated[int, Field(ge=2, le=20)] = 5
    """Number of cross-validation folds of the linear probe that separates query vectors from document
    vectors."""
    resamples: Annotated[int, Field(ge=100, le=100_000)] = 2_000
    """Number of bootstrap resamples."""
    drop_same_id: DropSameId = "auto"
    """Leave the document with the query's id out of its ranking: if their texts are equal too (auto), always
    (true), or never (false)."""
    map: MapSection | None = None
    """Draw a t-SNE map of both towers (extra ``maps``)."""


class SpaceSettings(EncoderTables, RunTables):
    """All settings of ``adiabat space``."""

    data: DataSection = DataSection()
    space: SpaceSection = SpaceSection()
