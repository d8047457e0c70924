"""A small corpus with copies and near copies, questions on it, and a miner for them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adiabat.config.dataset_settings import JudgeSection, MineSection
from adiabat.config.shared import DataSection
from adiabat.data.records import Document, Example, ExampleSet
from adiabat.mining.candidates import REASONS, LexicalSource, Vectors
from adiabat.mining.miner import MinedQuery, Miner
from adiabat.mining.mining_queries import all_texts, queries_in_corpus, written_corpus
from adiabat.store.bm25 import build_bm25
from adiabat.store.build import build_store
from adiabat.store.vector_store import Store
from tests.fake_encoder import FakeEncoder

ANSWER = "the cat sat on the old red mat in the sun and slept until the evening came and it was cold"
CORPUS = {
    "answer": ANSWER,
    "shouted": ANSWER.upper(),
    "longer": f"{ANSWER} when it went home to eat something",
    "cat": "a cat is an animal",
    "cat2": "A cat is  an animal",
    "cat3": "the cat that sat there was another cat",
    "mat": "mats are made of straw",
    "q1": "Under a title: where did the cat sit?",
    "ask": "Where did the cat  sit?",
    "dog": "the dog sat in the rain",
    "second": "cats sit wherever they want to sit",
}
QUERY = "where did the cat sit?"


def store_of(documents: Sequence[Document], folder: Path, **options: Any) -> Store:
    """Documents embedded by a fake encoder."""
    build = build_store(
        FakeEncoder(), lambda: iter(documents), folder, source="corpus", encoder_name="fake", **options
    )
    return build.store


def miner_of(
    folder: Path,
    examples: Sequence[Example],
    *,
    corpus: dict[str, str] = CORPUS,
    seed: int = 0,
    judge: Vectors | None = None,
    judge_settings: JudgeSection | None = None,
    **settings: Any,
) -> Miner:
    folder.mkdir(exist_ok=True)
    documents = written_corpus(
        lambda: (Document(*one) for one in corpus.items()), folder, source="corpus", replace=True
    )
    section = MineSection.model_validate({"negatives_per_query": 3, **settings})
    read = ExampleSet("set", tuple(examples))
    questions = queries_in_corpus(
        read, documents, DataSection(), corpus_name="corpus", keep_listed=section.listed == "keep"
    )
    source = LexicalSource(build_bm25(all_texts(documents), folder))
    return Miner(
        documents, questions, source, section, seed, judge, judge_settings or JudgeSection(model="judge")
    )


def mined(miner: Miner) -> list[MinedQuery]:
    return list(miner.mine(miner.queries.examples))


def chosen(miner: Miner, one: MinedQuery) -> list[str]:
    return miner.corpus.doc_ids(one.rows[one.chosen])


def reasons(miner: Miner, one: MinedQuery) -> dict[str, str]:
    """Candidate to why it was dropped; "kept" where it was not."""
    names = ("kept", *REASONS)
    return {
        doc_id: names[code]
        for doc_id, code in zip(miner.corpus.doc_ids(one.rows), one.codes.tolist(), strict=True)
    }
