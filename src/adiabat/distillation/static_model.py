"""A static model from a teacher: one vector per token, and a text the mean of its tokens' (van Dongen and Tulkens, model2vec)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from safetensors.numpy import save
from transformers import PreTrainedTokenizerFast

from adiabat.config.distillation import USUAL_DIMS, StaticSection
from adiabat.core.errors import DataError, ModelError
from adiabat.core.files import make_folder, write_text, write_together
from adiabat.core.progress import SILENT, Watch
from adiabat.distillation.token_embeddings import reduced, require_dims, token_vectors
from adiabat.distillation.vocabulary import Vocabulary, Word, count_tokens, vocabulary_of
from adiabat.models.encoder import Encoder
from adiabat.models.st_files import json_text
from adiabat.models.static import TOKENIZER, WEIGHTS, is_model2vec, unknown_id

Weights = Float[np.ndarray, " v"]


def by_rank(rows: int) -> Weights:
    """Model2Vec's first weights, of Zipf's law: ``ln(1 + r)`` of the token of rank ``r`` from 0.

    Reference:
        van Dongen and Tulkens, model2vec, "Basic".
    """
    return np.log1p(np.arange(rows, dtype=np.float64))


def by_count(counts: Int[np.ndarray, " v"]) -> Weights:
    """`by_rank`, of the ranks that tokens have in a corpus."""
    weights = np.empty(len(counts))
    weights[np.argsort(-counts, kind="stable")] = by_rank(len(counts))
    return weights


def zipf(rows: int) -> Weights:
    """How often tokens are expected by Zipf's law, which takes a token's share to fall as its rank rises.

    Returns:
        ``p_r = (1 / (r + 2)) / sum_s 1 / (s + 2)`` for ranks from 0.

    Reference:
        van Dongen and Tulkens, model2vec, "SIF weighting"; model2vec takes the same.
    """
    shares = 1.0 / np.arange(2, rows + 2)
    normalised: Weights = shares / shares.sum()
    return normalised


def counted(counts: Int[np.ndarray, " v"]) -> Weights:
    """How often tokens are expected by their number in a corpus, where each is thought to stand once more, so that none has share 0."""
    smoothed = counts.astype(np.float64) + 1.0
    shares: Weights = smoothed / smoothed.sum()
    return shares


def sif(shares: Weights, coefficient: float) -> Weights:
    """Smooth inverse frequency.

    Args:
        coefficient: ``a`` in (0, 1); the smaller, the less frequent tokens count.

    Returns:
        ``a / (a + p)``.

    Reference:
        Arora et al. 2017; van Dongen and Tulkens, model2vec, "SIF weighting".
    """
    return coefficient / (coefficient + shares)


def inverse_documents(containing: Int[np.ndarray, " v"], documents: int) -> Weights:
    """Inverse document frequency, as scikit-learn smooths it: what TF-IDF makes of a mean over tokens.

    Returns:
        ``ln((1 + n) / (1 + df)) + 1``.

    Reference:
        van Dongen and Tulkens, model2vec, which found it worse than SIF.
    """
    return np.log((1.0 + documents) / (1.0 + containing)) + 1.0


Texts = Callable[[], Iterable[str]]
"""Gives the texts of a corpus, as they come."""


@dataclass(frozen=True, slots=True, eq=False)
class Distilled:
    """A static model in the making.

    Attributes:
        kept: Share of the variance of the teacher's token vectors that is left; 1 where nothing was reduced.
        counted: Texts in which tokens were counted; 0 where their rank stands for that.
    """

    vocabulary: Vocabulary
    vectors: Float[np.ndarray, "v k"]
    weights: Weights
    kept: float
    counted: int


def distill(
    teacher: Encoder,
    section: StaticSection,
    *,
    words: Sequence[Word] = (),
    texts: Texts | None = None,
    folder: Path | None = None,
    seed: int = 0,
    watch: Watch = SILENT,
) -> Distilled:
    """Pass every token of a vocabulary through a teacher, and keep what tells them apart.

    Args:
        texts: In which tokens are counted; None goes by their rank.
        folder: Where the teacher's vectors are kept, so that what was cut short goes on; None keeps none.
    """
    # Before anything long: neither too many directions nor a corpus without texts must come to light after it.
    vocabulary, dims = rows_and_dims(teacher, section, words)
    if vocabulary.known:
        watch.note(f"{len(vocabulary.known):,} of {len(words):,} words are tokens of the teacher already")
    weights, texts_counted = _weights(vocabulary, section, texts, watch)
    if (unknown := unknown_id(vocabulary.tokenizer)) is not None:
        # It says nothing: model2vec leaves it out of a text, and sentence-transformers would count it.
        weights[unknown] = 0.0
    vectors = token_vectors(teacher, vocabulary.sequences, pooling=section.pooling, folder=folder, watch=watch)
    if section.reduction == "none":
        return Distilled(vocabulary, vectors, weights, 1.0, texts_counted)
    directions, variance = reduced(vectors, dims, how=section.reduction, seed=seed, watch=watch)
    return Distilled(vocabulary, directions, weights, variance, texts_counted)


def rows_and_dims(teacher: Encoder, section: StaticSection, words: Sequence[Word]) -> tuple[Vocabulary, int]:
    """The rows of a static model, and how many numbers each is to have."""
    if not isinstance(teacher.tokenizer, PreTrainedTokenizerFast):
        raise ModelError(f"a teacher must have a fast tokenizer, got a {type(teacher.tokenizer).__name__}; take another model")
    vocabulary = vocabulary_of(teacher.tokenizer, words=words, without=section.without)
    dims = section.dims if section.dims is not None else min(USUAL_DIMS, teacher.width)
    if section.reduction != "none":
        require_dims(dims, len(vocabulary.tokens), teacher.width)
    return vocabulary, dims


def _weights(vocabulary: Vocabulary, section: StaticSection, texts: Texts | None, watch: Watch) -> tuple[Weights, int]:
    rows = len(vocabulary.tokens)
    if texts is None:
        return {"none": np.ones(rows), "zipf": by_rank(rows), "sif": sif(zipf(rows), section.sif)}[section.weighting], 0
    counts = count_tokens(vocabulary.tokenizer, texts(), watch=watch)
    if not counts.times.any():
        raise DataError(f"static.corpus must hold texts with tokens, got {counts.texts:,} texts without; give another, or leave it out")
    if section.weighting == "zipf":
        return by_count(counts.times), counts.texts
    if section.weighting == "tfidf":
        return inverse_documents(counts.containing, counts.texts), counts.texts
    return sif(counted(counts.times), section.sif), counts.texts


LONGEST = 1_000_000
"""Tokens of a text; model2vec says so of models that have no limit."""


def save_static(distilled: Distilled, section: StaticSection, folder: Path, *, teacher: str) -> None:
    """Write the files of a model that both libraries load, and give the same embeddings with; it is none yet without `list_modules`."""
    write_together(
        {
            folder / WEIGHTS: save(_tensors(distilled, section)),
            folder / TOKENIZER: distilled.vocabulary.tokenizer.to_str(pretty=True),
            folder / "config.json": json_text(_config(distilled, section, teacher)),
            folder / "config_sentence_transformers.json": json_text({"similarity_fn_name": "cosine", "prompts": {}}),
        }
    )


def list_modules(section: StaticSection, folder: Path) -> None:
    """Write what makes a directory a model, after all that belongs to it."""
    if section.normalize:
        make_folder(folder / "1_Normalize")
    write_text(json_text(_modules(section)), folder / "modules.json")


def _tensors(distilled: Distilled, section: StaticSection) -> dict[str, np.ndarray]:
    """Weights are multiplied into the rows; of whole numbers they stand beside them, with the scale of each row."""
    if section.dtype != "int8":
        return {"embeddings": _narrowed(distilled.vectors * distilled.weights[:, None], section.dtype)}
    scales = np.abs(distilled.vectors).max(axis=1) / 127.0
    rows = np.rint(distilled.vectors / np.where(scales, scales, 1.0)[:, None]).astype(np.int8)
    return {"embeddings": rows, "weights": (scales * distilled.weights).astype(np.float32)}


def _narrowed(exact: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(exact, dtype=dtype)
    if not np.isfinite(rows).all():
        raise DataError(f"static.dtype must hold numbers up to {np.abs(exact).max():.3g}, got {dtype}; take float32")
    return rows


def _config(distilled: Distilled, section: StaticSection, teacher: str) -> dict[str, object]:
    return {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "tokenizer_name": teacher,
        "apply_pca": None if section.reduction == "none" else distilled.vectors.shape[1],
        "sif_coefficient": section.sif if section.weighting == "sif" else None,
        "hidden_dim": distilled.vectors.shape[1],
        "seq_length": LONGEST,
        # Without it, model2vec alone would cut texts, at 512 tokens.
        "max_length": None,
        "normalize": section.normalize,
        "pooling": section.pooling,
        "embedding_dtype": section.dtype,
    }


def _modules(section: StaticSection) -> list[dict[str, object]]:
    listed: list[dict[str, object]] = [{"idx": 0, "name": "0", "path": ".", "type": "sentence_transformers.models.StaticEmbedding"}]
    if section.normalize:
        listed.append({"idx": 1, "name": "1", "path": "1_Normalize", "type": "sentence_transformers.models.Normalize"})
    return listed


def is_distilled(folder: Path) -> bool:
    """Whether a directory holds a whole static model of model2vec's layout."""
    return (folder / "modules.json").is_file() and is_model2vec(folder)
