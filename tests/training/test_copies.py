"""Working copies of towers for training passes."""

import pytest

from adiabat.training.gradient_cache import Chunking, is_packed, size_of, training_copies
from tests.tiny import KINDS, Kind, tiny_encoder


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_thread_has_the_towers_parameters_and_the_others_their_values(kind: Kind):
    encoder = tiny_encoder(kind)
    (first,), (second,) = training_copies([encoder], 2, Chunking())
    for own, one, other in zip(encoder.parameters(), first.parameters(), second.parameters(), strict=True):
        assert one is own
        assert other is not own
        assert other.data_ptr() == own.data_ptr()


@pytest.mark.parametrize("kind", KINDS)
def test_copies_pack_where_they_can_and_nothing_has_a_fixed_shape(kind: Kind):
    encoder = tiny_encoder(kind)
    ((free,),) = training_copies([encoder], 1, Chunking(64))
    ((fixed,),) = training_copies([encoder], 1, Chunking(64, buckets=(8, 16)))
    assert is_packed(free) is (kind != "t5")
    assert not is_packed(fixed)
    assert not is_packed(encoder)


def test_tables_are_left_out_of_what_a_token_costs():
    encoder = tiny_encoder(projection=8)
    tables = sum(weights.numel() for name, weights in encoder.named_parameters() if "_embeddings." in name)
    assert size_of(encoder) == sum(weights.numel() for weights in encoder.parameters()) - tables
