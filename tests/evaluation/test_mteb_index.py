"""Tasks of mteb on stored vectors: the scores of the encoder, and no stored document goes through it again."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from adiabat.core.errors import StoreError
from adiabat.data.records import Document, Side, text_id
from adiabat.evaluation.mteb_encoder import MtebEncoder, MtebIndex
from adiabat.evaluation.mteb_task import score_mteb
from adiabat.models.embedding_head import EncoderSettings, Similarity
from adiabat.models.encoder import Encoder
from adiabat.models.towers import DualEncoder
from adiabat.store.build import build_store
from adiabat.store.manifest import StoreDtype
from adiabat.store.scoring import SIMILARITIES
from adiabat.store.vector_store import Store
from tests.tiny import tiny_dual

SETTINGS = EncoderSettings(max_tokens=128, query_prompt="ask: ", document_prompt="tell: ")


@pytest.fixture(scope="module", autouse=True)
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Imported here and not above: it takes seconds, and mteb makes its folder when it is imported."""
    pytest.importorskip("mteb")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MTEB_CACHE", str(tmp_path_factory.mktemp("mteb")))
        from tests.evaluation import own_tasks

        yield own_tasks


@pytest.fixture(scope="module")
def model() -> DualEncoder:
    return tiny_dual(shared=False, settings=SETTINGS)


class Exact:
    """Document tower in float32 on whatever machine, as measuring has it."""

    def __init__(self, model: DualEncoder) -> None:
        self.tower, self.width, self.fingerprint = model.document, model.width, model.fingerprint

    def encode(self, texts: Sequence[str], *, side: Side) -> np.ndarray:
        return self.tower.encode(texts, side=side, precision="fp32")


Stored = Callable[..., Store]


@pytest.fixture
def stored(tmp_path: Path, model: DualEncoder) -> Stored:
    def build(documents: Sequence[Document], *, by: DualEncoder = model, dtype: StoreDtype = "float32", texts: bool = True) -> Store:
        folder = tmp_path / f"stored{len(list(tmp_path.iterdir()))}"
        made = build_store(Exact(by), lambda: iter(documents), folder, dtype=dtype, keep_texts=texts, source="c", encoder_name="m")
        return made.store

    return build


@pytest.fixture
def corpus(tasks: ModuleType) -> list[Document]:
    """The documents of `Notes`, as adiabat joins title and text."""
    return [Document(doc_id, f"{title} {text}".strip()) for doc_id, title, text in tasks.documents()]


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> dict[Side, list[str]]:
    """All texts that go through a tower from here on."""
    seen: dict[Side, list[str]] = {"query": [], "document": []}
    encode = Encoder.encode

    def counted(self: Encoder, texts: Sequence[str], *, side: Side, **options: object) -> object:
        seen[side].extend(texts)
        return encode(self, texts, side=side, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Encoder, "encode", counted)
    return seen


def test_the_scores_are_the_encoders_and_no_document_is_encoded(
    tasks: ModuleType, model: DualEncoder, stored: Stored, corpus: list[Document], encoded: dict[Side, list[str]]
) -> None:
    for kind in (tasks.Notes, tasks.Reranked, tasks.WithoutSelf):
        plain = score_mteb(model, kind())
        # Rows in another order than mteb's.
        store = stored(corpus[::-1])
        encoded["document"].clear()
        scores = score_mteb(model, kind(), store=store)
        assert encoded["document"] == []
        np.testing.assert_allclose(scores.samples[0].values, plain.samples[0].values, atol=1e-6)
        assert scores.units == plain.units


def test_every_similarity_gives_the_scores_of_the_encoder(tasks: ModuleType, stored: Stored, corpus: list[Document]) -> None:
    bare = tiny_dual(settings=EncoderSettings(max_tokens=128, normalize=False))
    store = stored(corpus, by=bare)
    for similarity in SIMILARITIES:
        index = MtebIndex(bare, store, similarity=similarity)
        found, wanted = searched(index, tasks.Notes(), 7), by_plain_loops(bare, corpus, tasks.Notes(), similarity, 7)
        for query, scores in wanted.items():
            assert sorted(found[query].values()) == pytest.approx(sorted(scores.values()), rel=1e-4)
            for doc_id in scores:
                assert found[query].get(doc_id, min(scores.values())) == pytest.approx(scores[doc_id], rel=1e-4)


def searched(index: MtebIndex, task: object, top_k: int) -> dict[str, dict[str, float]]:
    task.load_data()  # type: ignore[attr-defined]
    data, about = task.dataset["default"]["test"], task.metadata  # type: ignore[attr-defined]
    index.index(data["corpus"], task_metadata=about, hf_split="test", hf_subset="default", encode_kwargs={})
    return index.search(data["queries"], task_metadata=about, hf_split="test", hf_subset="default", top_k=top_k, encode_kwargs={})


def by_plain_loops(
    model: DualEncoder, corpus: Sequence[Document], task: object, similarity: Similarity, top_k: int
) -> dict[str, dict[str, float]]:
    task.load_data()  # type: ignore[attr-defined]
    queries = task.dataset["default"]["test"]["queries"]  # type: ignore[attr-defined]
    documents = model.encode([one.text for one in corpus], side="document", precision="fp32").astype(np.float64)
    found = {}
    for query, vector in zip(queries["id"], model.encode(queries["text"], side="query", precision="fp32").astype(np.float64), strict=True):
        scores = {}
        for document, other in zip(corpus, documents, strict=True):
            product = float(vector @ other)
            length = float(np.linalg.norm(vector) * np.linalg.norm(other))
            by = {"cosine": product / length, "dot": product, "distance": -float(np.linalg.norm(vector - other))}
            scores[document.doc_id] = by[similarity]
        best = sorted(scores, key=lambda doc_id: -scores[doc_id])[:top_k]
        found[query] = {doc_id: scores[doc_id] for doc_id in best}
    return found


def test_a_part_of_a_store_is_searched_as_if_it_were_alone(
    tasks: ModuleType,
    model: DualEncoder,
    stored: Stored,
    corpus: list[Document],
    encoded: dict[Side, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    strangers = [Document(f"s{number}", f"what of {tasks.WORDS[number % 12]} {number}?") for number in range(30)]
    store, alone = stored([*strangers, *corpus]), stored(corpus)
    for kind in (tasks.Notes, tasks.Reranked):
        wanted = score_mteb(model, kind(), store=alone)
        encoded["document"].clear()
        scores = score_mteb(model, kind(), store=store)
        assert encoded["document"] == []
        np.testing.assert_array_equal(scores.samples[0].values, wanted.samples[0].values)
    assert not list((tmp_path / "temporary").iterdir())


def test_documents_are_known_by_their_text_where_ids_are_others(
    tasks: ModuleType, model: DualEncoder, stored: Stored, corpus: list[Document], encoded: dict[Side, list[str]]
) -> None:
    distinct = list(dict.fromkeys(one.text for one in corpus))
    shifted = [Document(f"d{number + 1}", text) for number, text in enumerate(distinct)]  # Each id is there, of another document.
    by_hash = [Document(text_id(text), text) for text in distinct]
    wanted = score_mteb(model, tasks.Notes())
    for documents, texts in ((shifted, True), (by_hash, True), (by_hash, False)):
        store = stored(documents, texts=texts)
        encoded["document"].clear()
        np.testing.assert_allclose(score_mteb(model, tasks.Notes(), store=store).samples[0].values, wanted.samples[0].values, atol=1e-6)
        assert encoded["document"] == []


def test_missing_documents_are_counted_and_named_or_encoded(
    tasks: ModuleType, model: DualEncoder, stored: Stored, corpus: list[Document], encoded: dict[Side, list[str]]
) -> None:
    changed = [Document("d7", "something else"), *corpus[8:]]
    store = stored(changed)
    told = r"Notes: every document must be in the store .*, it lacks 7 documents: 'd1' \('on river river and ledger 1'\); .* of 40; embed"
    with pytest.raises(StoreError, match=told):
        score_mteb(model, tasks.Notes(), store=store)
    wanted = score_mteb(model, tasks.Notes())
    encoded["document"].clear()
    scores = score_mteb(model, tasks.Notes(), store=store, missing="encode")
    # d0 has the text of d39, which is there.
    assert encoded["document"] == [one.text for one in corpus[1:8]]
    np.testing.assert_allclose(scores.samples[0].values, wanted.samples[0].values, atol=1e-6)


def test_the_revision_tells_stores_apart(model: DualEncoder, stored: Stored, corpus: list[Document]) -> None:
    wrapped = [MtebEncoder(model), MtebIndex(model, stored(corpus)), MtebIndex(model, stored(corpus, dtype="float16"))]
    assert len({one.mteb_model_meta.revision for one in wrapped}) == 3
