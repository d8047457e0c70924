"""Weights of the tokens of a static model: frequent ones say little, and count for less (van Dongen and Tulkens, model2vec).

A vocabulary is in the order in which a tokenizer learnt it, the frequent tokens first, so that a token's row stands for its rank.
"""

import numpy as np
from jaxtyping import Float, Int

Weights = Float[np.ndarray, " v"]


def by_rank(rows: int) -> Weights:
    """Model2Vec's first weights, of Zipf's law: ``ln(1 + r)`` of the token of rank ``r`` from 0.

    Args:
        rows: Tokens.

    Returns:
        A weight for each; that of the first is 0.

    Reference:
        van Dongen and Tulkens, model2vec, "Basic".
    """
    return np.log1p(np.arange(rows, dtype=np.float64))


def by_count(counts: Int[np.ndarray, " v"]) -> Weights:
    """`by_rank`, of the ranks that tokens have in a corpus.

    Args:
        counts: Of each token, >= 0; among equal ones the first token has the lower rank.

    Returns:
        A weight for each; that of the most frequent is 0.
    """
    weights = np.empty(len(counts))
    weights[np.argsort(-counts, kind="stable")] = by_rank(len(counts))
    return weights


def zipf(rows: int) -> Weights:
    """How often tokens are expected by Zipf's law, which takes a token's share to fall as its rank rises.

    Args:
        rows: Tokens.

    Returns:
        ``p_r = (1 / (r + 2)) / sum_s 1 / (s + 2)`` for ranks from 0.

    Reference:
        van Dongen and Tulkens, model2vec, "SIF weighting"; model2vec takes the same.
    """
    shares = 1.0 / np.arange(2, rows + 2)
    normalised: Weights = shares / shares.sum()
    return normalised


def counted(counts: Int[np.ndarray, " v"]) -> Weights:
    """How often tokens are expected by their number in a corpus, where each is thought to stand once more, so that none has share 0.

    Args:
        counts: Of each token, >= 0.

    Returns:
        Shares that sum to 1.
    """
    smoothed = counts.astype(np.float64) + 1.0
    shares: Weights = smoothed / smoothed.sum()
    return shares


def sif(shares: Weights, coefficient: float) -> Weights:
    """Smooth inverse frequency.

    Args:
        shares: How often each token is expected, ``p``.
        coefficient: ``a`` in (0, 1); the smaller, the less frequent tokens count.

    Returns:
        ``a / (a + p)``.

    Reference:
        Arora et al. 2017; van Dongen and Tulkens, model2vec, "SIF weighting".
    """
    return coefficient / (coefficient + shares)


def inverse_documents(containing: Int[np.ndarray, " v"], documents: int) -> Weights:
    """Inverse document frequency, as scikit-learn smooths it: what TF-IDF makes of a mean over tokens.

    Args:
        containing: Documents of a corpus that hold each token.
        documents: Of the corpus.

    Returns:
        ``ln((1 + n) / (1 + df)) + 1``.

    Reference:
        van Dongen and Tulkens, model2vec, which found it worse than SIF.
    """
    return np.log((1.0 + documents) / (1.0 + containing)) + 1.0
