"""A static model from a teacher: one vector per token, and a text the mean of its tokens' (mission E1)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from transformers import PreTrainedTokenizerFast

from adiabat.config.distil import USUAL_DIMS, StaticSection
from adiabat.distil.counting import count_tokens
from adiabat.distil.passing import token_vectors
from adiabat.distil.reduction import reduced, require_dims
from adiabat.distil.vocabulary import Vocabulary, Word, vocabulary_of
from adiabat.distil.weights import Weights, by_count, by_rank, counted, inverse_documents, sif, zipf
from adiabat.errors import DataError, ModelError
from adiabat.model.encoder import Encoder
from adiabat.model.static_files import unknown_id
from adiabat.watch import SILENT, Watch

Texts = Callable[[], Iterable[str]]
"""Gives the texts of a corpus, as they come."""


@dataclass(frozen=True, slots=True, eq=False)
class Distilled:
    """A static model in the making.

    Attributes:
        vocabulary: What it knows.
        vectors: Of each row, before it is weighed.
        weights: Of each row.
        kept: Share of the variance of the teacher's token vectors that is left; 1 where nothing was reduced.
        counted: Texts in which tokens were counted; 0 where their rank stands for that.
    """

    vocabulary: Vocabulary
    vectors: Float[np.ndarray, "v k"]
    weights: Weights
    kept: float
    counted: int


def distil(
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
    directions, kept = reduced(vectors, dims, how=section.reduction, seed=seed, watch=watch)
    return Distilled(vocabulary, directions, weights, kept, texts_counted)


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
