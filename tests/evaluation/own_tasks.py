"""Small tasks of mteb's kinds with data made here; importing this imports mteb, which takes seconds and seeds
generators.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import datasets
from mteb.abstasks import (
    AbsTaskBitextMining,
    AbsTaskClassification,
    AbsTaskPairClassification,
    AbsTaskRetrieval,
    AbsTaskSTS,
    AbsTaskSummarization,
)
from mteb.abstasks.clustering_legacy import AbsTaskClusteringLegacy
from mteb.abstasks.task_metadata import TaskMetadata

WORDS = ("bread", "river", "engine", "violin", "glacier", "ledger")
WORDS += ("pepper", "harbour", "orbit", "quilt", "saddle", "thunder")
UNSTATED = ["reference", "date", "domains", "task_subtypes", "license", "dialect", "bibtex_citation"]
UNSTATED += ["annotations_creators", "sample_creation"]
ONE_LANGUAGE = {"default": ["eng-Latn"]}


def about(
    name: str, kind: str, score: str, languages: Mapping[str, list[str]] = ONE_LANGUAGE
) -> TaskMetadata:
    return TaskMetadata(
        name=name,
        description="Made for a test.",
        dataset={"path": f"own/{name}", "revision": "1"},
        type=kind,  # type: ignore[arg-type]
        category="t2t",
        eval_splits=["test"],
        eval_langs=languages if languages is not ONE_LANGUAGE else ["eng-Latn"],
        main_score=score,
        **dict.fromkeys(UNSTATED),  # type: ignore[arg-type]
    )


def rows(**columns: Sequence[Any]) -> datasets.Dataset:
    return datasets.Dataset.from_dict({name: list(values) for name, values in columns.items()})


def documents(count: int = 40) -> list[tuple[str, str, str]]:
    """Id, title and text; every third has no title, and two have one text."""
    titles = [f"on {WORDS[i % 12]}" if i % 3 else "" for i in range(count)]
    texts = [f"{WORDS[i % 12]} and {WORDS[i * 5 % 12]} {i * i}" for i in range(count)]
    made = [(f"d{i}", title, text) for i, (title, text) in enumerate(zip(titles, texts, strict=True))]
    return [*made[:-1], (made[-1][0], *made[0][1:])]


class Notes(AbsTaskRetrieval):
    metadata = about("Notes", "Retrieval", "ndcg_at_10")
    candidates: ClassVar[dict[str, list[str]] | None] = None

    def load_data(self, *_: Any, **__: Any) -> None:
        corpus = documents()
        texts = {f"q{i}": f"what of {WORDS[i % 12]} {i}?" for i in range(16)}
        grades = {query: {f"d{i}": 2, f"d{i + 12}": 1, f"d{i + 20}": 0} for i, query in enumerate(texts)}
        ids, titles, bodies = zip(*corpus, strict=True)
        data = {
            "corpus": rows(id=ids, title=titles, text=bodies),
            "queries": rows(id=list(texts), text=list(texts.values())),
            "relevant_docs": grades,
            "top_ranked": self.candidates,
        }
        self.dataset = {"default": {"test": data}}
        self.data_loaded = True


class Reranked(Notes):
    metadata = about("Reranked", "Reranking", "map_at_1000")
    candidates: ClassVar = {f"q{i}": [f"d{j}" for j in range(i, i + 24, 3)] for i in range(16)}


class WithoutSelf(Notes):
    """Queries that are documents themselves, and the first answer of each left out."""

    metadata = about("WithoutSelf", "Retrieval", "mrr_at_10")
    ignore_identical_ids = True
    skip_first_result = True

    def load_data(self, *_: Any, **__: Any) -> None:
        super().load_data()
        data = self.dataset["default"]["test"]
        data["queries"] = rows(id=[f"d{i}" for i in range(16)], text=[text for *_, text in documents()[:16]])
        data["relevant_docs"] = {f"d{i}": {f"d{i + 12}": 1, f"d{i + 24}": 1} for i in range(16)}


class Alike(AbsTaskSTS):
    metadata = about("Alike", "STS", "cosine_spearman", {"en": ["eng-Latn"], "de": ["deu-Latn"]})

    def load_data(self, *_: Any, **__: Any) -> None:
        self.dataset = {language: {"test": self.pairs(count)} for language, count in (("en", 24), ("de", 17))}
        self.data_loaded = True

    @staticmethod
    def pairs(count: int) -> datasets.Dataset:
        ones = [f"a {WORDS[i % 12]}" for i in range(count)]
        others = [f"the {WORDS[i * 7 % 12]} {i}" for i in range(count)]
        return rows(sentence1=ones, sentence2=others, score=[i * 3 % 6 for i in range(count)])


class Linear(Alike):
    metadata = about("Linear", "STS", "cosine_pearson", {"en": ["eng-Latn"], "de": ["deu-Latn"]})


class Topics(AbsTaskClassification):
    metadata = about("Topics", "Classification", "accuracy")

    def load_data(self, *_: Any, **__: Any) -> None:
        self.dataset = datasets.DatasetDict()
        for split, start in (("train", 0), ("test", 40)):
            texts = [f"{WORDS[i % 4]} {i + start}" for i in range(40)]
            self.dataset[split] = rows(text=texts, label=[i % 4 for i in range(40)])
        self.data_loaded = True


class Duplicates(AbsTaskPairClassification):
    metadata = about("Duplicates", "PairClassification", "max_ap")

    def load_data(self, *_: Any, **__: Any) -> None:
        pairs = Alike.pairs(30)
        sides = {name: pairs[name] for name in ("sentence1", "sentence2")}
        self.dataset = {"test": rows(**sides, labels=[i * 3 % 2 for i in range(30)])}
        self.data_loaded = True


class ByDistance(Duplicates):
    metadata = about("ByDistance", "PairClassification", "euclidean_ap")


class Translations(AbsTaskBitextMining):
    metadata = about("Translations", "BitextMining", "f1")

    def load_data(self, *_: Any, **__: Any) -> None:
        self.dataset = {"test": rows(sentence1=WORDS, sentence2=[f"{word[:3]}o" for word in WORDS])}
        self.data_loaded = True


class Sets(AbsTaskClusteringLegacy):
    metadata = about("Sets", "Clustering", "v_measure")

    def load_data(self, *_: Any, **__: Any) -> None:
        texts = [[f"{WORDS[(i + start) % 3]} {i}" for i in range(12)] for start in (0, 1)]
        self.dataset = {"test": rows(sentences=texts, labels=[[i % 3 for i in range(12)]] * 2)}
        self.data_loaded = True


class Summaries(AbsTaskSummarization):
    metadata = about("Summaries", "Summarization", "cosine_spearman")
    min_score = 0
    max_score = 5

    def load_data(self, *_: Any, **__: Any) -> None:
        machine = [[f"{WORDS[(i + j) % 12]} {j}" for j in range(5)] for i in range(6)]
        people = [[f"{WORDS[i]} {WORDS[i + 1]}"] for i in range(6)]
        grades = [[(i + 2 * j) % 5 for j in range(5)] for i in range(6)]
        told = {"human_summaries": people, "machine_summaries": machine, "relevance": grades}
        self.dataset = {"test": rows(text=WORDS[:6], **told)}
        self.data_loaded = True
