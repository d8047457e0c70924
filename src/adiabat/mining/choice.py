"""Which of the candidates that passed become negatives: the best, or any, by a chance that belongs to the query alone."""

import hashlib
from typing import Literal

import numpy as np
from jaxtyping import Int64

Choice = Literal["ranked", "random"]


def query_generator(seed: int, query_id: str, query: str) -> np.random.Generator:
    """Random numbers of one query, whatever other queries there are and in whatever blocks they come."""
    return np.random.default_rng([seed, query_number(query_id, query)])


def query_number(query_id: str, query: str) -> int:
    """64 bits of a query."""
    digest = hashlib.blake2b(query_id.encode("utf-8", "surrogatepass"), digest_size=8)
    digest.update(b"\0" + query.encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest(), "little")


def in_order_of_choice(kept: Int64[np.ndarray, " k"], choice: Choice, generator: np.random.Generator) -> Int64[np.ndarray, " k"]:
    """The order in which candidates are taken until there are enough."""
    return kept if choice == "ranked" else generator.permutation(kept)
