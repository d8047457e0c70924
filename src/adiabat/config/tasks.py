"""Settings of ``adiabat evaluate --suite``, ``adiabat compare`` and ``adiabat space``; the suites that come with adiabat."""

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from adiabat.config.reader import shown
from adiabat.config.section import DropSameId, Section, Text, Texts
from adiabat.config.shared import ColumnsSection, DataSection, EncoderSection, RankingEncoderSection, RankingMeasureSection, RunSection
from adiabat.core.errors import ConfigError

Towers = Literal["query", "document"]


class NamedTask(Section):
    """Settings of every task."""

    name: Text | None = None
    """Name in tables; None takes that of the data."""


class TaskSection(NamedTask):
    """One of ``[[tasks]]``: queries, and the corpus that each model embeds."""

    data: Text
    """Queries with positives: BEIR folder, file, or data set of the hub."""
    corpus: Text | None = None
    """Documents; None takes those of a BEIR folder, and otherwise the documents that the examples list as texts."""
    split: Text | None = None
    corpus_split: Text | None = None
    """Split of a corpus of the hub."""
    columns: ColumnsSection = ColumnsSection()
    missing: Literal["error", "drop"] = "error"
    """Documents that the corpus lacks: stop (error), or leave them out (drop)."""
    blank: Literal["error", "drop"] = "error"
    """Documents of the corpus without title and text: stop (error), or leave them out (drop)."""

    def ignored(self) -> Iterator[tuple[str, str]]:
        """Only a corpus of its own has a split."""
        if self.corpus is None:
            yield "corpus_split", "without a corpus"


class RetrievalTask(TaskSection):
    """Queries ranked against a whole corpus, or (``triplets``) against the candidates that each of them lists."""

    kind: Literal["retrieval", "triplets"]
    measures: Annotated[Texts, Field(min_length=1)] | None = None
    """Measures; None takes ``measure.measures``. The first decides the verdict of a retrieval task, PND that of triplets."""
    stores: Texts = ()
    """Stores of the same corpus; a model whose document tower made one reads it and embeds nothing."""
    drop_same_id: DropSameId | None = None
    """Leave out the document with the query's id; None takes ``measure.drop_same_id``."""

    def ignored(self) -> Iterator[tuple[str, str]]:
        """Triplets rank what they list."""
        yield from super().ignored()
        if self.kind == "triplets":
            yield "drop_same_id", "with kind = triplets, whose queries rank only listed documents"


class NliGridTask(NamedTask):
    """Sentence pairs with labels in several languages: entailment should be closer than neutral and contradiction."""

    kind: Literal["nli_grid"]
    data: Text
    languages: Texts = ()
    """Languages; empty takes those that every pair has."""


class QuestionGridTask(NamedTask):
    """Questions in several languages against the paragraphs of one language at a time, each language with each."""

    kind: Literal["question_grid"]
    data: Text
    """Questions: a text for each language, and in the column `key` the name of the paragraph that answers them."""
    corpus: Text
    """Paragraphs: a text for each language, and in the column `key` their name."""
    key: Text = "para"
    """Column that both files share."""
    languages: Texts = ()
    """Languages; empty takes those that both files have."""


class FilteredTask(NamedTask):
    """A task whose data is a table."""

    data: Text
    split: Text | None = None
    """Split of a hub data set."""
    where: Mapping[str, str] = {}
    """Values of columns; other rows of `data` are left out, such as by ``{ lang = "de", split = "test" }``."""


class TextsTask(FilteredTask):
    """A task of texts on an equal footing, without queries and documents."""

    side: Towers = "query"
    """Tower and prompt that embed them."""


class PairsTask(TextsTask):
    """Pairs of texts, in the columns `a` and `b`."""

    a: Text = "a"
    b: Text = "b"


class StsTask(PairsTask):
    """Pairs of texts with a similarity that people gave: Spearman's rank correlation."""

    kind: Literal["sts"]
    score: Text = "score"


class WordsTask(PairsTask):
    """Pairs of words with a similarity that people gave, in one set or several: the mean of the sets' rank correlations."""

    kind: Literal["words"]
    score: Text = "score"
    set: Text | None = "set"
    """Column with the name of the set; None has one set."""


class PairClassificationTask(PairsTask):
    """Pairs of texts that belong together, or do not: average precision of the similarity."""

    kind: Literal["pair_classification"]
    label: Text = "label"
    positive: Text = "1"
    """Label of the pairs that belong together."""


class BitextTask(TextsTask):
    """Parallel sentences: each should find its translation among all, both ways."""

    kind: Literal["bitext"]
    a: Text
    b: Text


class ClassificationTask(TextsTask):
    """Texts with labels: logistic regression on the vectors of `data` (training) tells those of `test`."""

    kind: Literal["classification"]
    test: Text
    test_split: Text | None = None
    test_where: Mapping[str, str] = {}
    """As `where`, for the rows of `test`. Where both are one table, give a column of `where` another value here."""
    text: Text = "text"
    label: Text = "label"
    per_label: PositiveInt | None = None
    """Training texts per label, drawn at random; None takes all."""
    regularization: PositiveFloat = 1.0
    """C of the logistic regression."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """The rows of the test differ from those of the training."""
        told_apart = any(self.test_where.get(column, value) != value for column, value in self.where.items())
        if (self.data, self.split) == (self.test, self.test_split) and not told_apart:
            fault = "must select other rows than where does, since test and data are the same table"
            advice = "give a column of where another value here, or set test_split"
            yield "test_where", f"{fault}, got {shown(self.test_where)} beside where = {shown(self.where)}; {advice}"


class ClusteringTask(TextsTask):
    """Texts with labels: V-measure of k-means, as many clusters as labels."""

    kind: Literal["clustering"]
    text: Text = "text"
    label: Text = "label"
    restarts: PositiveInt = 10
    """Restarts of k-means; the tightest clustering counts."""
    most: PositiveInt | None = None
    """Maximum number of texts, drawn at random; None takes all."""


class MtebTask(NamedTask):
    """A task of the mteb library by its name, by mteb's own evaluator."""

    kind: Literal["mteb"]
    task: Text


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


class ModelSection(Section):
    """One of ``[[models]]``: a model with a name and overrides."""

    name: Text
    model: Text
    """As on the command line: a hub name, a directory, a job, ``demo``, ``bm25`` or ``bm25:LANGUAGE`` (words cut to their stems)."""
    runs: Texts = ()
    """Further models that differ from `model` in their seed alone; values are means over all, intervals cover seeds and units."""
    encoder: RankingEncoderSection = RankingEncoderSection()


class SuiteSection(Section):
    """``[suite]``: title, baseline and stores."""

    name: Text = "suite"
    baseline: Text | None = None
    """Name of the model that others are compared with; None compares each with the best model of every task."""
    stores: Text | None = None
    """Directory of the vectors of corpora, which suites may share; None takes one inside the directory of the result."""


class RunsMeasureSection(Section):
    """``[measure]`` of two runs."""

    measures: Annotated[Texts, Field(min_length=1)] = ("nDCG@10", "RR", "AP", "P@1")
    """Measures of runs in the format of TREC, in the grammar of ir-measures; the first decides the verdict."""
    ties: Literal["relevant_last", "trec_eval"] = "relevant_last"
    """Order of documents with equal scores in such a run: relevant ones last, or as trec_eval sorts them, by descending document id, with
    scores compared in 32 bits."""
    task: Text | None = None
    """Name of the task of such a run, as score files have it; None takes the name of the file of judgements."""
    units: Literal["same", "common"] = "same"
    """Where one run lacks queries of the other: stop and count them (same), or compare on those of both (common)."""
    resamples: Annotated[int, Field(ge=100)] = 10_000
    """Resamples of the bootstrap, and number of sign flips."""


class CompareSettings(Section):
    """Everything that ``adiabat compare`` may be told."""

    measure: RunsMeasureSection = RunsMeasureSection()
    run: RunSection = RunSection()


class SuiteSettings(Section):
    """Everything that ``adiabat evaluate --suite`` may be told."""

    suite: SuiteSection = SuiteSection()
    encoder: RankingEncoderSection = RankingEncoderSection()
    """Encoder settings of models on the command line; those of ``[[models]]`` have their own."""
    measure: RankingMeasureSection = RankingMeasureSection()
    """Measures of all tasks; `depth` and `drop_same_id` apply to retrieval."""
    run: RunSection = RunSection()
    tasks: Annotated[tuple[AnyTask, ...], Field(strict=False)] = ()
    models: Annotated[tuple[ModelSection, ...], Field(strict=False)] = ()

    def faults(self) -> Iterator[tuple[str, str]]:
        """Names are unique."""
        yield from repeated_names("tasks", [task.name for task in self.tasks])
        yield from repeated_names("models", [model.name for model in self.models])


def repeated_names(key: str, names: Sequence[str | None]) -> Iterator[tuple[str, str]]:
    """The fault of names that occur twice, which tables cannot tell apart; None is no name."""
    if again := [name for name, count in Counter(filter(None, names)).items() if count > 1]:
        yield key, f"must have names of their own, got {', '.join(map(shown, again))} more than once; rename them"


ENDING = ".toml"


def suite_file(name: str) -> Path:
    """Where the settings of a suite are."""
    if Path(name).exists() or name.endswith(ENDING):
        return Path(name)
    known = named_suites()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    advice = f"did you mean {near[0]}?" if near else f"the suites that come with adiabat are {', '.join(known)}"
    raise ConfigError(f"--suite must be a TOML file or a suite that comes with adiabat, got {name}; {advice}")


def named_suites() -> dict[str, Path]:
    """The suites that come with adiabat, by name."""
    folder = Path(str(resources.files("adiabat.config") / "suites"))
    return {path.stem: path for path in sorted(folder.glob(f"*{ENDING}"))}


Sampled = Annotated[int, Field(ge=20, le=5_000)]
"""Tables of all pairs of a sample are held in memory: 200 MB at the most."""


class MapSection(Section):
    """``[space.map]``: a map of both towers by t-SNE."""

    queries: PositiveInt = 500
    """Queries of the map, each with its positive, drawn from those of the sample."""
    perplexity: Annotated[PositiveFloat, Field(ge=2)] = 30.0
    """About how many neighbours of a point count."""


class SpaceSection(Section):
    """``[space]``: sizes of the samples, and the map."""

    queries: Sampled = 2_000
    """Maximum number of queries, each with one positive, drawn at random."""
    documents: Sampled = 2_000
    """Maximum number of documents of the store, drawn at random."""
    pairs: Annotated[int, Field(ge=100, le=1_000_000)] = 10_000
    """Random pairs of a query with another query, or with the positive of another."""
    folds: Annotated[int, Field(ge=2, le=20)] = 5
    """Folds of the cross-validated probe that separates query vectors from document vectors."""
    resamples: Annotated[int, Field(ge=100, le=100_000)] = 2_000
    """Resamples of the bootstrap."""
    drop_same_id: DropSameId = "auto"
    """Leave out the document with the query's id: if their texts are equal too (auto), always (true), or never (false)."""
    map: MapSection | None = None
    """Draw both towers as a map (extra ``maps``)."""


class SpaceSettings(Section):
    """Everything that ``adiabat space`` may be told."""

    encoder: EncoderSection = EncoderSection()
    data: DataSection = DataSection()
    space: SpaceSection = SpaceSection()
    run: RunSection = RunSection()
