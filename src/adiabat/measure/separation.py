"""Whether a straight line tells query vectors from document vectors: area under the ROC curve of a cross-validated probe (mission C6)."""

import numpy as np
from jaxtyping import Float, Int

from adiabat.measure.space import Counts, Draws, Statistic

REGULARISATION = 1.0
"""C of the logistic regression, on vectors whose components have variance 1 on average."""

ITERATIONS = 2_000


def fold_of(clusters: Int[np.ndarray, " n"], folds: int, *, seed: int) -> Int[np.ndarray, " n"]:
    """Put pairs into folds, those of one cluster into the same one: no positive is learned from in one fold and judged in another.

    Args:
        clusters: Of each pair, from 0; as many at least as folds.
        folds: How many.
        seed: Of the order in which clusters are dealt out.

    Returns:
        The fold of each pair, from 0.
    """
    sizes = np.bincount(clusters)
    order = np.random.default_rng(seed).permutation(len(sizes))
    # The largest first, each into the smallest fold, so that folds come out about equal.
    filled, fold = np.zeros(folds), np.empty(len(sizes), dtype=np.int64)
    for cluster in order[np.argsort(-sizes[order], kind="stable")]:
        fold[cluster] = int(filled.argmin())
        filled[fold[cluster]] += sizes[cluster]
    return np.asarray(fold[clusters])


def probe_scores(
    queries: Float[np.ndarray, "n e"], documents: Float[np.ndarray, "n e"], folds: Int[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """How much like a query each vector looks to a logistic regression that has not seen its fold.

    Vectors are centred and divided by one number, so that nothing depends on how the axes lie.

    Args:
        queries: One of each pair.
        documents: The other.
        folds: Of each pair.

    Returns:
        Scores of queries, and of documents; higher is more like a query.
    """
    scores = np.empty((2, len(folds)))
    for fold in range(int(folds.max()) + 1):
        aside = folds == fold
        scores[:, aside] = _fold_scores(queries, documents, aside)
    return scores[0], scores[1]


def _fold_scores(queries: Float[np.ndarray, "n e"], documents: Float[np.ndarray, "n e"], aside: np.ndarray) -> Float[np.ndarray, "2 a"]:
    from sklearn.linear_model import LogisticRegression

    learned = np.concatenate([queries[~aside], documents[~aside]])
    centre = learned.mean(axis=0)
    spread = float(np.sqrt(np.square(learned - centre).mean())) or 1.0
    probe = LogisticRegression(C=REGULARISATION, max_iter=ITERATIONS, tol=1e-6)
    probe.fit((learned - centre) / spread, np.repeat([1, 0], len(learned) // 2))
    return np.stack([probe.decision_function((vectors[aside] - centre) / spread) for vectors in (queries, documents)])


def auc_of(queries: Float[np.ndarray, " n"], documents: Float[np.ndarray, " n"], folds: Int[np.ndarray, " n"]) -> Statistic:
    """How often a query scores above a document, both of the same fold; a tie counts half.

    ``AUC = sum_f sum_{i,j in f} c_i c_j [s(q_i) > s(d_j)] / sum_f (sum_{i in f} c_i)^2``: scores of different folds come from different
    regressions and are not compared.

    Args:
        queries: Scores.
        documents: Scores.
        folds: Of each pair.

    Returns:
        The statistic: 0.5 where nothing tells the towers apart, 1 where the probe always does.

    Reference:
        Hanley and McNeil 1982; mission C6.
    """
    members = [np.flatnonzero(folds == fold) for fold in range(int(folds.max()) + 1)]
    wins = [_wins(queries[own], documents[own]) for own in members]

    def value(counts: Counts) -> Draws:
        won, compared = np.zeros(len(counts)), np.zeros(len(counts))
        for own, table in zip(members, wins, strict=True):
            drawn = counts[:, own]
            won += np.einsum("rn,rn->r", drawn @ table, drawn)
            compared += np.square(drawn.sum(axis=1))
        return won / compared

    return value


def _wins(queries: Float[np.ndarray, " n"], documents: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n n"]:
    ahead = queries[:, None] - documents[None]
    return np.asarray((np.sign(ahead) + 1) / 2)
