"""Tokens of a static model, including added words, and their vectors by the teacher (van Dongen and Tulkens,
model2vec).
"""

import hashlib
import json
import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from skeletoken import TokenizerModel
from skeletoken.models import BPE
from skeletoken.padding import Padding
from sklearn.decomposition import PCA, FastICA
from sklearn.exceptions import ConvergenceWarning
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from adiabat.core.errors import ConfigError, DataError, several
from adiabat.core.progress import SILENT, Watch
from adiabat.core.wording import option
from adiabat.data.lines import Cursor, text_lines
from adiabat.data.table_rows import FileFaults
from adiabat.data.text_hashes import blocks
from adiabat.distillation.distill_checks import require_vocabulary
from adiabat.models.device import Precision
from adiabat.models.embedding_head import Pooling
from adiabat.models.encoder import Encoder
from adiabat.store.analysers import SPACELESS
from adiabat.store.text_vectors import EmbeddingCache

Table = Float[np.ndarray, "v e"]
"""The teacher's vector of each token."""

Reduced = Float[np.ndarray, "v k"]
"""The projections of each token's vector onto a few directions."""

Counts = Int[np.ndarray, " v"]
"""A number for each token."""

TokenPooling = Literal["mean", "token", "first", "last"]
"""``mean``: over the token and the special tokens around it; ``token``: over the token's own states;
``first`` and ``last``: the first or last state."""

POOLINGS: Mapping[TokenPooling, Pooling] = {"mean": "mean", "token": "mean", "first": "cls", "last": "last"}

PRECISION: Precision = "fp32"
"""Precision of the passes, whose results the table stores."""

TOKEN_BLOCK = 8_192
"""Number of tokens between two records of progress on disk."""


@dataclass(frozen=True, slots=True)
class Sequences:
    """Token sequences that pass through the teacher, one for each row of a table.

    `before` and `after` count the special tokens around the token itself, which pooling by ``token`` leaves
    out.
    """

    token_ids: Sequence[Sequence[int]]
    before: int
    after: int


def token_vectors(
    teacher: Encoder,
    sequences: Sequences,
    *,
    pooling: TokenPooling = "mean",
    folder: Path | None = None,
    watch: Watch = SILENT,
) -> Table:
    """Pass sequences through a teacher with its projections, without prompts or normalisation.

    Args:
        pooling: How the states of a sequence become one vector.
        folder: Where vectors are saved as they are made, so that an interrupted call resumes; those of
            another teacher, vocabulary or pooling lie apart. None keeps them in memory alone.

    Returns:
        A vector for each sequence, finite.
    """
    settings = replace(teacher.settings, pooling=POOLINGS[pooling], normalize=False)
    bare = teacher.with_settings(settings)
    skipped, closing = (sequences.before, sequences.after) if pooling == "token" else (0, 0)
    cache = EmbeddingCache(len(sequences.token_ids), bare.width)
    if folder is not None:
        # Everything that decides the vectors is part of the name, so that no call takes those of another.
        around = [sequences.before, sequences.after, pooling, PRECISION]
        text = json.dumps([bare.weights_digest(), [list(ids) for ids in sequences.token_ids], *around])
        cache.keep_in(folder / f"tokens-{hashlib.sha256(text.encode()).hexdigest()[:16]}", resume=True)
    missing = np.flatnonzero(~cache.known)
    for start in range(0, len(missing), TOKEN_BLOCK):
        watch.progress("passing tokens through the teacher", start, len(missing))
        rows = missing[start : start + TOKEN_BLOCK]
        vectors = bare.encode_tokens(
            [sequences.token_ids[row] for row in rows], skipped=skipped, closing=closing, precision=PRECISION
        )
        _require_finite(vectors, sequences, rows, teacher)
        cache.put(rows, vectors)
        cache.save()
    return cache.vectors


def _require_finite(
    vectors: Float[np.ndarray, "b e"], sequences: Sequences, rows: Int[np.ndarray, " b"], teacher: Encoder
) -> None:
    """Refuse a token whose vector has a number that is not finite: it would spoil every reduced vector."""
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        token = teacher.tokenizer.decode(list(sequences.token_ids[int(rows[finite.argmin()])]))
        raise DataError(
            f"the teacher must give finite vectors, got one that is not for {token!r}; check its weights"
        )


Reduction = Literal["pca", "randomized", "ica"]
"""``pca``: eigenvectors of the covariance, exact; ``randomized``: a random projection, for thousands of
dimensions; ``ica``: independent instead of uncorrelated directions, which van Dongen and Tulkens (model2vec)
found worse."""


def reduced(
    table: Table, dims: int, *, how: Reduction = "pca", seed: int = 0, watch: Watch = SILENT
) -> tuple[Reduced, float]:
    """Centre token vectors, and project them onto a few directions.

    Returns:
        The projections, and the share of the variance that they keep.
    """
    require_dims(dims, *table.shape)
    exact = table.astype(np.float64)
    if not np.ptp(exact, axis=0).any():
        raise DataError(
            "the teacher must tell tokens apart, got the same vector for all; "
            "check its weights, or take another pooling"
        )
    if how == "ica":
        scores = _independent(exact, dims, seed, watch)
        variance = _kept(exact, scores)
    else:
        projection = PCA(
            n_components=dims,
            svd_solver="covariance_eigh" if how == "pca" else "randomized",
            random_state=seed,
        )
        scores = projection.fit_transform(exact)
        variance = float(projection.explained_variance_ratio_.sum())
    # Directions have no sign of their own: the largest score of each is made positive.
    largest = scores[np.abs(scores).argmax(axis=0), np.arange(dims)]
    return (scores * np.sign(largest)).astype(np.float32), variance


def require_dims(dims: int, rows: int, width: int) -> None:
    """Refuse more directions than the vectors can have."""
    if dims > width:
        raise ConfigError(
            f"static.reduction.dims must be at most {width}, the width of the teacher, "
            f"got {dims}; lower it, or leave it out"
        )
    if dims >= rows:
        raise ConfigError(
            f"static.reduction.dims must be below the {rows} tokens of the vocabulary, got {dims}; lower it"
        )


def _independent(table: Table, dims: int, seed: int, watch: Watch) -> Reduced:
    """Independent directions, each of unit variance; a note tells if they did not converge."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        sources: Reduced = FastICA(
            n_components=dims, whiten="unit-variance", random_state=seed
        ).fit_transform(table)
    if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
        watch.note(
            "independent directions did not converge: they span the right space, but are rotated within it"
        )
    return sources


def _kept(table: Table, scores: Reduced) -> float:
    """Share of the variance that a linear function of the projections explains."""
    # Onto an orthonormal basis Q of the projections: |Q^T X|^2 / |X|^2, both centred.
    centred = table - table.mean(axis=0)
    basis, _ = np.linalg.qr(scores - scores.mean(axis=0))
    return float(((basis.T @ centred) ** 2).sum() / (centred**2).sum())


UNUSED = r"\[unused\d+\]"
"""Pattern of tokens that BERT reserves, which never occur in texts."""


@dataclass(frozen=True, slots=True)
class Word:
    """An added word or phrase."""

    text: str
    place: str


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """Rows of a static model: `tokenizer` adds no special tokens, `sequences` pass through the teacher,
    `known` are its tokens.
    """

    tokens: list[str]
    tokenizer: Tokenizer
    sequences: Sequences
    known: list[Word]
    added: int


def vocabulary_of(
    tokenizer: PreTrainedTokenizerFast, *, words: Sequence[Word] = (), without: str | None = UNUSED
) -> Vocabulary:
    """The tokens of a teacher, except those that begin with a match of `without`, and added words.

    Special tokens of the teacher that never occur in texts, such as the mask, are left out. An added word
    that the tokenizer treats as one piece becomes a token; one that it splits, such as a phrase, is matched
    in texts before they are split, but not inside other words.

    Args:
        words: Words to add, which must differ after the tokenizer's normalisation.
        without: Regular expression that is matched at the beginning of each token; None leaves none out.

    Raises:
        DataError: Words are equal, empty, or of no token that the teacher knows.
        ConfigError: The pattern is none, or matches all tokens.
    """
    with _quietly():
        pruned = TokenizerModel.from_transformers_tokenizer(tokenizer).prune_added_tokens()
    edited, added, known = _with_words(_bare(pruned, without), words)
    tokens = list(edited.sorted_vocabulary)
    if len(tokens) < 2:
        raise ConfigError(
            f"static.without must leave tokens, got {without!r}, which matches all; leave it out"
        )
    teacher_tokens = pruned.vocabulary
    # The teacher has no vector of these of its own: they pass through it as texts.
    new = sum(token not in teacher_tokens for token in tokens)
    return Vocabulary(
        tokens,
        edited.to_tokenizer(),
        _sequences(pruned, tokens, added, _opening(tokenizer, pruned)),
        known,
        new,
    )


def _opening(tokenizer: PreTrainedTokenizerFast, model: TokenizerModel) -> list[int]:
    """Token placed before each token if the tokenizer adds none: the first state of a decoder hardly depends
    on its token.
    """
    begin = tokenizer.bos_token_id
    return [] if begin is None or model.bos_ids else [begin]


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence warnings about the teacher's padding token, which no text of a static model contains."""
    logger = logging.getLogger("skeletoken")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _bare(model: TokenizerModel, without: str | None) -> TokenizerModel:
    """The tokenizer without special tokens around texts, without the teacher's limit, and without some
    tokens.
    """
    bare: Any = model.deep_copy()
    bare.truncation = None
    if bare.adds_prefix_space is not None:
        # A word is the same token at the start of a text as within it.
        bare.adds_prefix_space = True
    bare.post_processor = None
    if bare.padding is not None:
        bare.padding = Padding(pad_id=bare.padding.pad_id, pad_token=bare.padding.pad_token, pad_type_id=0)
    if without is None:
        return bare  # type: ignore[no-any-return]
    try:
        pattern = re.compile(without)
    except re.error as fault:
        raise ConfigError(f"static.without must be a regular expression, got {without!r}: {fault}") from fault
    # Without its unknown token, a tokenizer fails at the first text that needs it.
    unknown = bare.unk_token
    pruned: Any = bare.remove_tokens_from_vocabulary(
        [token for token in bare.sorted_vocabulary if pattern.match(token) and token != unknown]
    )
    if unknown is not None:
        # Unigram refers to it by number, which has changed.
        pruned.model.unk_token = unknown
    return pruned  # type: ignore[no-any-return]


def _with_words(
    model: TokenizerModel, words: Sequence[Word]
) -> tuple[TokenizerModel, dict[str, Word], list[Word]]:
    """The tokenizer with added words; the word of each new token; and words that are tokens already."""
    tokens, pieces, phrases = set(model.sorted_vocabulary), dict[str, Word](), dict[str, Word]()
    known, faults = dict[str, Word](), list[str]()
    # Merges of pieces whose letters carry a mark, such as `</w>` at the end of a word, are not those of its
    # letters.
    marks_pieces = isinstance(model.model, BPE) and bool(
        model.model.end_of_word_suffix or model.model.continuing_subword_prefix
    )
    for word in words:
        split = model.preprocessor.preprocess(word.text, had_initial_subword_prefix=True)
        if not split:
            faults.append(f"{word.place}: {word.text!r} is empty once the tokenizer has normalised it")
            continue
        is_piece = len(split) == 1 and not marks_pieces
        group, token = (pieces, split[0]) if is_piece else (phrases, _normalized(model, word.text))
        group = known if token in tokens else group
        if token in group:
            faults.append(f"{word.place}: {word.text!r} is the same word as that of {group[token].place}")
        group.setdefault(token, word)
    if faults:
        raise DataError(
            "words must be distinct after the tokenizer's normalisation, got "
            f"{several(faults)}; remove these lines"
        )
    # Drop other added tokens, which never occur in texts.
    # Short words first: BPE builds longer ones from pieces, and a word must not exist before its own turn.
    ordered = sorted(pieces, key=len)
    grown = _without_idle_merges(
        model.prune_added_tokens().add_tokens_to_vocabulary(ordered, preprocess_tokens=False)
    )
    for bordered in (True, False):
        chosen = [phrase for phrase in phrases if _has_borders(phrase) == bordered]
        grown = grown.add_addedtokens(chosen, is_special=False, single_word=bordered, normalized=True)
    return grown, {**pieces, **phrases}, list(known.values())


def _without_idle_merges(model: TokenizerModel) -> TokenizerModel:
    """The tokenizer without merges whose product is no token, which `tokenizers` refuses.

    skeletoken merges a word's letters two by two. Where a pair occurs twice, as ``nd`` in ``independent``,
    its merge takes letters of other pairs, such as ``de``, which are then part of no word.
    """
    if isinstance(model.model, BPE):
        tokens, merges = set(model.sorted_vocabulary), model.model.merges
        merges._remove_merges_for_tokens({left + right for left, right in merges.root} - tokens)
    return model


def _has_borders(phrase: str) -> bool:
    """Whether a phrase must end at word boundaries: in scripts with spaces between words, it must not match
    inside longer words.
    """
    return all(end.isalnum() and not SPACELESS.match(end) for end in (phrase[0], phrase[-1]))


def _normalized(model: TokenizerModel, text: str) -> str:
    """A text as the tokenizer normalises it, such as in lower case."""
    normalizer = model.preprocessor.normalizer
    return (text if normalizer is None else normalizer.normalize_str(text)).strip()


def _require_known(teacher: Tokenizer, words: Iterable[Word], unknown: int | None) -> None:
    """Refuse words without any token of the teacher, which would all have the same vector."""
    strange = []
    for word in words:
        ids = teacher.encode(word.text, add_special_tokens=False).ids
        if set(ids) <= {unknown}:
            strange.append(f"{word.place}: {word.text!r}")
    if strange:
        raise DataError(
            f"the teacher must know a piece of each word, got {several(strange)}; "
            "remove these lines, or take another teacher"
        )


def _sequences(
    model: TokenizerModel, tokens: Sequence[str], added: Mapping[str, Word], opening: list[int]
) -> Sequences:
    """Sequence for the teacher, in its own ids: a token between special tokens, or a word tokenised as
    text.
    """
    before, after, teacher_ids = list(model.bos_ids or []), list(model.eos_ids or []), model.vocabulary
    ids, teacher = dict(model.model_delta.token_mapping), model.to_tokenizer()
    teacher.no_padding()
    teacher.no_truncation()

    def passed(token: str) -> list[int]:
        """The teacher's ids of a token, with special tokens around it."""
        if token in teacher_ids:
            return [*before, teacher_ids[token], *after]
        # Pieces that BPE merges on the way to a word are tokens too.
        text = added[token].text if token in added else model.preprocessor.decode(token).decoded
        encoded: list[int] = teacher.encode(text).ids
        return encoded

    _require_known(
        teacher, added.values(), None if model.unk_token is None else teacher_ids.get(model.unk_token)
    )
    return Sequences(
        [[*opening, *(ids[piece] for piece in passed(token))] for token in tokens],
        len(opening) + len(before),
        len(after),
    )


def read_words(path: Path) -> list[Word]:
    """Read the file of added words."""
    require_vocabulary(path)
    faults = FileFaults()
    words = [Word(line.strip(), f"{path}:{number}") for number, line, _ in text_lines(path, faults, Cursor())]
    faults.raise_if_any()
    if empty := [f"{word.place} is empty" for word in words if not word.text]:
        raise DataError(f"a file of words must have one on each line: {several(empty)}; remove the line")
    if not words:
        raise DataError(
            f"{path} must hold words, one per line, got none; add some, or leave {option('vocabulary')} out"
        )
    return words


TEXT_BLOCK = 4_096
"""Number of texts tokenised at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenCounts:
    """Occurrences of each row of a vocabulary (`times`), and the texts that have it (`containing`), of all
    `texts`.
    """

    times: Counts
    containing: Counts
    texts: int


def count_tokens(tokenizer: Tokenizer, texts: Iterable[str], *, watch: Watch = SILENT) -> TokenCounts:
    """Count the tokens of texts, a block of texts at a time and without special tokens."""
    rows = tokenizer.get_vocab_size()
    times, containing = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
    count = 0
    for block in blocks(texts, TEXT_BLOCK):
        for encoding in tokenizer.encode_batch_fast(block, add_special_tokens=False):
            tokens, often = np.unique(np.asarray(encoding.ids, dtype=np.int64), return_counts=True)
            times[tokens] += often
            containing[tokens] += 1
        count += len(block)
        watch.progress("counting tokens of the corpus", count, count)
    return TokenCounts(times, containing, count)
