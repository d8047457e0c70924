"""A static model of a teacher: beside model2vec, and as three libraries load it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float
from model2vec import StaticModel
from model2vec.distill import distill_from_model
from model2vec.distill.inference import compute_weights
from sentence_transformers import SentenceTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from tokenizers import Tokenizer

import adiabat
from adiabat.config.distillation import DistillStaticSettings
from adiabat.config.reader import checked
from adiabat.core.errors import ConfigError, DataError, JobError
from adiabat.core.progress import Watch
from adiabat.distillation import static_model as distilling
from adiabat.distillation.static_model import by_count, by_rank, counted, inverse_documents, sif, zipf
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.loading import load
from adiabat.models.static import StaticBackbone, unknown_id
from adiabat.models.towers import DualEncoder
from adiabat.results.distillation_result import DistillResult
from adiabat.results.record import read_result
from tests.data.files import write
from tests.distillation.worlds import of_words, wordpiece
from tests.refused import refused
from tests.tiny import edit, save_tiny

TEXTS = ["the cat sat", "New York cats", "dogs", "", "the the cat 日本", "c s at"]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder with letters for tokens."""
    return save_tiny(tmp_path_factory.mktemp("teacher"), width=24, settings=EncoderSettings(max_tokens=64))


def settings_of(**section: Any) -> DistillStaticSettings:
    return checked(
        DistillStaticSettings,
        {"static": {"reduction": {"dims": 8}, "dtype": "float32", **section}, "run": {"device": "cpu"}},
    )


def made(
    teacher: Path | DualEncoder, out: Path, notes: list[str] | None = None, **section: Any
) -> DistillResult:
    watch = Watch(note=(notes if notes is not None else []).append)
    model = teacher if isinstance(teacher, DualEncoder) else str(teacher)
    return adiabat.distill_static(model, out, settings=settings_of(**section), progress=watch)


def embedded(folder: Path, texts: list[str] = TEXTS) -> Float[np.ndarray, "n e"]:
    return load(folder).encode(texts, side="query", precision="fp32")


@pytest.mark.parametrize(
    "section",
    [{}, {"reduction": {"dims": 4}, "weighting": {"a": 1e-2}}, {"weighting": "none"}, {"reduction": "none"}],
)
@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_vectors_are_those_of_model2vec(
    teacher: Path, tmp_path: Path, section: dict[str, Any], pooling: str
) -> None:
    made(teacher, tmp_path / "ours", pooling=pooling, **section)
    tower, static = load(teacher).document, settings_of(**section).static
    coefficient = static.weighting.a if static.weighting.kind == "sif" else None
    dims = static.reduction.dims
    peer = distill_from_model(
        tower.backbone,
        tower.tokenizer,
        device="cpu",
        pca_dims=dims,
        sif_coefficient=coefficient,
        quantize_to="float32",
        pooling=pooling,
    )
    ours = StaticModel.from_pretrained(str(tmp_path / "ours"))
    assert ours.tokens == peer.tokens
    known = [row for row, token in enumerate(peer.tokens) if token != "[UNK]"]
    largest = np.abs(peer.embedding).max()
    np.testing.assert_allclose(ours.embedding[known], peer.embedding[known], atol=1e-3 * largest)
    np.testing.assert_allclose(ours.encode(TEXTS), peer.encode(TEXTS), atol=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("normalize", [True, False])
def test_three_libraries_give_the_same_embeddings(
    teacher: Path, tmp_path: Path, dtype: str, normalize: bool
) -> None:
    made(teacher, tmp_path / "model", dtype=dtype, normalize=normalize)
    ours = embedded(tmp_path / "model")
    first = StaticModel.from_pretrained(str(tmp_path / "model")).encode(TEXTS)
    second = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(TEXTS)
    # In float16, model2vec makes an empty text no number: the least that it divides by is 0 there.
    written = [row for row, text in enumerate(TEXTS) if text]
    for other in (first, second):
        np.testing.assert_allclose(ours[written], other[written], atol=2e-3 if dtype == "float16" else 1e-5)
    norms = np.linalg.norm(ours, axis=1)
    assert norms[3] == 0
    assert np.allclose(np.delete(norms, 3), 1, atol=1e-5) == normalize


def test_long_texts_are_read_to_their_end_whatever_the_limit_of_the_teacher(tmp_path: Path) -> None:
    folder, text = save_tiny(tmp_path / "teacher", width=24), "a" * 600 + "z" * 200
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(16)
    tokenizer.save(str(folder / "tokenizer.json"))
    edit(folder, "tokenizer_config.json", model_max_length=16)
    made(folder, tmp_path / "model", normalize=False, weighting="none")
    peer = StaticModel.from_pretrained(str(tmp_path / "model"))
    found, first, last = embedded(tmp_path / "model", [text, "a" * 600, "z" * 200])
    np.testing.assert_allclose(found, 0.75 * first + 0.25 * last, atol=1e-2 * np.abs(found).max())
    for other in (peer, SentenceTransformer(str(tmp_path / "model"), device="cpu")):
        np.testing.assert_allclose(other.encode([text])[0], found, atol=1e-5)
    # Counts go to the end, too.
    corpus = write(tmp_path / "corpus.jsonl", {"id": "1", "text": text})
    made(folder, tmp_path / "counted", normalize=False, weighting={"corpus": str(corpus)})
    counted = StaticModel.from_pretrained(str(tmp_path / "counted"))
    rows = [peer.tokens.index(token) for token in ("a", "z")]
    weights = np.linalg.norm(counted.embedding[rows], axis=1) / np.linalg.norm(peer.embedding[rows], axis=1)
    shares = np.array([601, 201]) / (800 + len(peer.tokens))
    np.testing.assert_allclose(weights, 1e-4 / (1e-4 + shares), rtol=0.01)


@pytest.mark.parametrize(("dtype", "close"), [("float16", 0.9999), ("int8", 0.999)])
def test_fewer_bits_give_nearly_the_same(teacher: Path, tmp_path: Path, dtype: str, close: float) -> None:
    exact = made(teacher, tmp_path / "exact")
    small = made(teacher, tmp_path / "small", dtype=dtype)
    assert small.size < exact.size
    cosines = (embedded(tmp_path / "exact") * embedded(tmp_path / "small")).sum(axis=1)
    assert np.delete(cosines, 3).min() > close


def test_unknown_tokens_say_nothing(tmp_path: Path) -> None:
    made(of_words(), tmp_path / "model", reduction={"dims": 3}, normalize=False)
    static = load(tmp_path / "model")
    found = embedded(tmp_path / "model", ["the cat", "the 日 cat", "日"])
    np.testing.assert_allclose(found[1], found[0] * 2 / 3, atol=1e-6)
    assert not found[2].any()
    # It is the row that training leaves at zero.
    assert isinstance(static.query.backbone, StaticBackbone)
    assert static.query.backbone.weightless_id == unknown_id(wordpiece().backend_tokenizer)


def test_counts_of_a_corpus_weigh_tokens(teacher: Path, tmp_path: Path) -> None:
    rows = ({"_id": f"d{number}", "text": "a" * 9 + "b" * number} for number in range(3))
    corpus = write(tmp_path / "corpus.jsonl", *rows)
    tables = {}
    ways: dict[str, dict[str, Any]] = {"sif": {"a": 0.1}, "tfidf": {}, "zipf": {}, "none": {}}
    for name, section in ways.items():
        given = {} if name == "none" else {"corpus": str(corpus)}
        result = made(teacher, tmp_path / name, weighting={"kind": name, **section, **given})
        assert result.counted == (0 if name == "none" else 3)
        model = StaticModel.from_pretrained(str(tmp_path / name))
        tables[name] = {token: row for token, row in zip(model.tokens, model.embedding, strict=True)}
    rows = len(tables["none"])
    # A blank is put before each text, so that its first word is a word as any other.
    share = {"a": (27 + 1) / (33 + rows), "b": (3 + 1) / (33 + rows), "z": 1 / (33 + rows)}
    weights = {
        "sif": {letter: 0.1 / (0.1 + often) for letter, often in share.items()},
        # "a" comes most often, so that it weighs nothing; "b" as often as what stands before each text, whose
        # row is a later one.
        "zipf": {letter: np.log1p(rank) for letter, rank in {"a": 0, "b": 1}.items()},
        "tfidf": {letter: np.log(4 / (1 + held)) + 1 for letter, held in {"a": 3, "b": 2, "z": 0}.items()},
    }
    for name, by_letter in weights.items():
        for letter, weight in by_letter.items():
            expected = tables["none"][letter] * weight
            np.testing.assert_allclose(tables[name][letter], expected, rtol=1e-5, atol=1e-6)


def test_words_are_added(teacher: Path, tmp_path: Path) -> None:
    words = write(tmp_path / "words.txt", b"cat\n new york \nc\n")
    found = made(teacher, tmp_path / "model", vocabulary=str(words))
    model = StaticModel.from_pretrained(str(tmp_path / "model"))
    assert model.tokenizer.encode("new york").tokens[-1].replace("Ġ", " ").strip() == "new york"
    assert found.tokens == len(model.tokens)
    assert found.added >= 2


def test_words_that_are_there_already_are_told(tmp_path: Path) -> None:
    words, notes = write(tmp_path / "words.txt", b"Cat\ncats\n"), list[str]()
    found = made(of_words(), tmp_path / "model", notes, reduction={"dims": 3}, vocabulary=str(words))
    assert notes == found.notes == ["1 of 2 words are tokens of the teacher already"]
    assert found.added == 1


def test_the_record_says_what_it_came_from(teacher: Path, tmp_path: Path) -> None:
    found = made(teacher, tmp_path / "model")
    assert read_result(tmp_path / "model" / "result.json") == found
    assert (found.tokens, found.dims, found.added, found.counted) == (258, 8, 0, 0)
    assert 0 < found.kept < 1
    assert found.settings["static"]["reduction"]["dims"] == 8
    assert found.inputs["teacher"]["weights_sha256"] == load(teacher).document.weights_digest()
    assert {path.name for path in (tmp_path / "model").iterdir()} == {
        *(".call.json", "1_Normalize", "config.json", "config_sentence_transformers.json"),
        *("model.safetensors", "modules.json", "result.json", "tokenizer.json"),
    }


@pytest.mark.parametrize("at", ["save_static", "write_result", "list_modules"])
def test_what_was_cut_short_goes_on_and_what_is_there_is_refused(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    def cut(*args: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(distilling, at, cut)
        with pytest.raises(KeyboardInterrupt):
            made(teacher, tmp_path / "model")
    assert (tmp_path / "model" / ".passed").is_dir()
    assert not (tmp_path / "model" / "modules.json").exists()
    monkeypatch.setattr(Encoder, "encode_tokens", lambda *args, **named: pytest.fail("they are there"))
    made(teacher, tmp_path / "model")
    with refused(JobError, "holds a model already"):
        made(teacher, tmp_path / "model")


def test_numbers_beyond_the_type_on_disk_are_told(teacher: Path, tmp_path: Path) -> None:
    model = load(teacher)
    with torch.no_grad():
        for part in model.document.backbone.modules():
            if isinstance(part, torch.nn.LayerNorm):
                part.weight.mul_(1e6)
    with refused(DataError, "static.dtype must hold numbers up to ", "got float16; ", "float32"):
        made(model, tmp_path / "model", reduction="none", dtype="float16")


@pytest.mark.parametrize(
    ("section", "kind", "told"),
    [
        ({"reduction": {"dims": 25}}, ConfigError, "static.reduction.dims must be at most 24, "),
        ({"without": "["}, ConfigError, "static.without must be a regular expression"),
        ({"vocabulary": "gone.txt"}, DataError, "static.vocabulary must be a readable file, got gone.txt"),
        ({"weighting": {"corpus": "gone.jsonl"}}, DataError, "gone.jsonl"),
    ],
)
def test_what_cannot_be_made_is_told_before_anything_passes(
    teacher: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    section: dict[str, Any],
    kind: type[Exception],
    told: str,
) -> None:
    monkeypatch.setattr(Encoder, "encode_tokens", lambda *args, **named: pytest.fail("too early"))
    with refused(kind, told):
        made(teacher, tmp_path / "model", **section)


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ({"weighting": {"a": 0.0}}, "static.weighting.a must be > 0, got 0"),
        ({"weighting": {"a": 1.0}}, "static.weighting.a must be < 1, got 1"),
        ({"reduction": {"dims": 0}}, "static.reduction.dims must be > 0, got 0"),
        ({"weighting": "tfidf"}, 'static.weighting.corpus must be given with static.weighting = "tfidf"'),
        ({"pooling": "middle"}, "static.pooling must be 'mean', 'token', 'first' or 'last', got 'middle'"),
    ],
)
def test_settings_that_make_no_model_are_told(section: dict[str, Any], told: str) -> None:
    with refused(ConfigError, told):
        checked(DistillStaticSettings, {"static": section})


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"a\n\nb\n \n", "words.txt:2 is empty; "),
        (b"", "words.txt must hold words, one per line, got none"),
        (b"\xff\xfe", "words.txt must be UTF-8, got UTF-16"),
    ],
)
def test_files_of_words_that_are_none_are_told(
    teacher: Path, tmp_path: Path, content: bytes, told: str
) -> None:
    words = write(tmp_path / "words.txt", content)
    with refused(DataError, told):
        made(teacher, tmp_path / "model", vocabulary=str(words))
    assert not (tmp_path / "model").exists()


def test_zipf_and_sif_by_hand() -> None:
    whole = 1 / 2 + 1 / 3 + 1 / 4
    assert zipf(3) == pytest.approx([1 / 2 / whole, 1 / 3 / whole, 1 / 4 / whole])
    assert sif(np.array([0.5, 0.0]), 0.1) == pytest.approx([0.1 / 0.6, 1.0])
    assert by_rank(3) == pytest.approx([0.0, np.log(2), np.log(3)])
    assert by_count(np.array([2, 7, 2])) == pytest.approx([np.log(2), 0.0, np.log(3)])


@pytest.mark.parametrize("rows", [1, 7, 30_000])
def test_sif_by_rank_is_model2vecs(rows: int) -> None:
    np.testing.assert_allclose(sif(zipf(rows), 1e-4), compute_weights(rows, 1e-4), rtol=1e-12)


def test_counts_are_shares_and_inverse_document_frequency_is_scikit_learns() -> None:
    assert counted(np.array([0, 1, 5])) == pytest.approx([1 / 9, 2 / 9, 6 / 9])
    peer = TfidfVectorizer(token_pattern=r"\w").fit(["a b", "a c", "a b c", "a"])
    np.testing.assert_allclose(inverse_documents(np.array([4, 2, 2]), 4), peer.idf_)
