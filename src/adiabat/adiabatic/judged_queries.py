"""Queries that are ranked in a whole store by the measure of verdicts, to judge towers while tuning."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float

from adiabat.config.shared import RetainSection
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.progress import SILENT
from adiabat.core.ragged import Ragged
from adiabat.core.text import counted
from adiabat.core.wording import option
from adiabat.data.examples import read_examples
from adiabat.data.records import LanguageGridSet
from adiabat.data.sources import with_columns, with_split
from adiabat.data.text_hashes import held_out_documents, held_out_queries
from adiabat.evaluation.ranking import DenseRanker, rank_in_store
from adiabat.evaluation.retrieval import query_clusters
from adiabat.evaluation.systems import identical_documents
from adiabat.models.bulk import TokenTable, embed_all
from adiabat.models.embedding_head import Similarity
from adiabat.models.encoder import Encoder
from adiabat.stats.clusters import Clusters
from adiabat.stats.samples import Sample, ranking_sample
from adiabat.store.addressing import AddressedSet, address
from adiabat.store.vector_store import Store

MEASURE, DEPTH = "nDCG@10", 100
"""The measure that decides verdicts on queries, and the length of the rankings that it looks at."""

TOKENS = 4_096
"""Tokens in a batch of queries, including padding."""

MOST_CHOOSING = 250
"""Maximum queries of a retention set that choose; the others are for its verdict."""

FEWEST_CHOOSING = 20
"""Queries below which a retention set excludes no loss worth the name."""


@dataclass(frozen=True)
class JudgedQueries:
    """Queries with relevant documents, ranked against the whole store.

    Attributes:
        left_out: Documents that are queries themselves, which are left out of their query's ranking.
    """

    store: Store
    examples: AddressedSet
    tokens: TokenTable
    left_out: Ragged
    similarity: Similarity

    @classmethod
    def of(
        cls, store: Store, examples: AddressedSet, tokens: TokenTable, similarity: Similarity
    ) -> "JudgedQueries":
        """Queries of a store with their tokens."""
        same = identical_documents(
            store, examples.query_ids, examples.queries, examples.positives, drop="auto"
        )
        return cls(store, examples, tokens, same.rows, similarity)

    @torch.no_grad()
    def vectors(self, tower: Encoder) -> Float[np.ndarray, "q e"]:
        """The queries by a tower."""
        # Not `Encoder.encode`, whose threads would change the last digits of the surrounding training.
        return np.asarray(embed_all(tower, self.tokens, token_budget=TOKENS).float().cpu().numpy())

    def scores(self, vectors: Float[np.ndarray, "q e"], device: torch.device) -> Float[np.ndarray, " q"]:
        """The measure of each query by its vector."""
        ranker = DenseRanker(self.store, vectors, self.similarity, device)
        ranks = rank_in_store(ranker, self.examples, self.left_out, SILENT)
        return ranks.values(MEASURE, depth=DEPTH)

    def sample(self, values: Float[np.ndarray, " q"]) -> Sample:
        """Values of the queries, of which those that share a relevant document are drawn together."""
        return ranking_sample(MEASURE, values, clusters=self._clusters)

    @cached_property
    def _clusters(self) -> Clusters | None:
        """Connected once for all candidates."""
        return query_clusters(self.examples, "documents")


def choosing_half(section: RetainSection, store: Store) -> AddressedSet:
    """The queries of a retention set that choose: half of them, by their hashes, at most `MOST_CHOOSING`.

    Queries that share a relevant document are in one half, unless relevance ties most of them together.
    """
    source = with_columns(with_split(section.data, section.split), section.columns.given())
    read = read_examples(source, usual_split="test")
    if isinstance(read, LanguageGridSet):
        raise ConfigError(
            f"{option('retain')} must name queries with positives, got the language grid {section.data}; "
            "leave it out"
        )
    examples = address(read, store, merge_equal=True)
    half = held_out_documents(examples.queries, examples.positives, 0.5, MOST_CHOOSING)
    if half is None:
        half = held_out_queries(examples.queries, 0.5, MOST_CHOOSING)
    if len(half) < FEWEST_CHOOSING:
        raise DataError(
            f"{section.data} must hold at least {2 * FEWEST_CHOOSING} queries, half of which choose, got "
            f"{counted(len(examples), 'query')}; add queries, or leave the set out"
        )
    return examples.take(half)
