"""How a batch is cut, and how threads share it out."""

import numpy as np
import pytest

from adiabat.training.gradient_cache import Chunking, evenly, pieces_of, shared_out


def test_the_cut_makes_the_longer_half_as_short_as_can_be():
    lengths = np.array([9, 3, 8, 2, 4])
    cut = shared_out(lengths, 2, packed=False)
    assert sorted(np.concatenate(cut).tolist()) == [0, 1, 2, 3, 4]
    cost = max(len(part) * lengths[part].max() for part in cut)
    order = np.sort(lengths)
    assert cost == min(max(k * order[k - 1], (5 - k) * order[-1]) for k in range(1, 5)) == 18


def test_packed_halves_have_nearly_the_same_number_of_tokens():
    lengths = np.array([9, 3, 8, 2, 4, 1])
    parts = shared_out(lengths, 2, packed=True)
    assert sorted(np.concatenate(parts).tolist()) == [0, 1, 2, 3, 4, 5]
    # By hand: 9 | 8, then 4 joins 8, 3 joins 9, 2 joins the first (12 each), 1 the other.
    assert sorted(int(lengths[part].sum()) for part in parts) == [13, 14]


def test_two_texts_of_which_one_is_long_make_two_halves():
    assert [len(part) for part in shared_out(np.array([500, 3]), 2, packed=True)] == [1, 1]


def test_every_piece_goes_to_the_thread_that_has_least():
    assert [part.tolist() for part in evenly(np.array([5, 9, 4, 3, 1]), 2)] == [[1, 3], [0, 2, 4]]
    assert [part.tolist() for part in evenly(np.array([5]), 2)] == [[0]]


def test_chunks_of_nothing_are_refused():
    with pytest.raises(ValueError, match="tokens must be at least 1, got 0"):
        Chunking(0)


@pytest.mark.parametrize("buckets", [(0, 8), (8, 8), (16, 8)])
def test_buckets_that_do_not_ascend_are_refused(buckets: tuple[int, ...]):
    with pytest.raises(ValueError, match="buckets must be ascending lengths of at least 1, got"):
        Chunking(16, buckets=buckets)


def test_options_that_need_others_say_so():
    with pytest.raises(ValueError, match="tokens must be a number where there are buckets, got None"):
        Chunking(buckets=(8, 16))
    with pytest.raises(ValueError, match="compiled must go with buckets, got none"):
        Chunking(16, compiled=True)
    with pytest.raises(ValueError, match="checkpointed must be False with compiled"):
        Chunking(16, buckets=(8, 16), compiled=True, checkpointed=True)


def test_no_texts_are_no_pieces():
    assert pieces_of(np.arange(0), Chunking(8), threads=2, packed=True, longest=128) == []


def test_pieces_know_what_is_computed_for_them():
    lengths = np.array([2, 5, 2, 4])
    # By hand: rows of [5], [4, 2], [2] within 8 tokens; padded, the second costs 2 x 4.
    for packed, costs in ((True, [5, 6, 2]), (False, [5, 8, 2])):
        pieces = pieces_of(lengths, Chunking(8), threads=2, packed=packed, longest=128)
        assert [piece.positions.tolist() for piece in pieces] == [[1], [3, 0], [2]]
        assert [piece.tokens for piece in pieces] == costs
        assert all(piece.shape is None for piece in pieces)


def test_pieces_in_buckets_have_the_shape_of_the_bucket():
    pieces = pieces_of(np.array([3, 20, 4, 5, 9]), Chunking(16, buckets=(4, 8)), threads=2, packed=False, longest=12)
    # 9 and 20 go beyond the buckets, to the next multiple of 128, which is cut at the limit: 16 // 12 = 1 row.
    assert [(piece.positions.tolist(), piece.shape, piece.tokens) for piece in pieces] == [
        ([1], (1, 12), 12),
        ([4], (1, 12), 12),
        ([3], (2, 8), 16),
        ([0, 2], (4, 4), 16),
    ]


def test_without_a_number_of_tokens_each_thread_gets_one_piece():
    lengths = np.array([9, 3, 8, 2, 4, 1])
    for packed in (True, False):
        assert len(pieces_of(lengths, Chunking(), threads=2, packed=packed, longest=128)) == 2
        assert len(pieces_of(lengths, Chunking(), threads=1, packed=packed, longest=128)) == 1


@pytest.mark.parametrize("packed", [False, True])
def test_a_batch_that_fits_one_chunk_still_keeps_both_threads_busy(packed: bool):
    lengths = np.array([9, 3, 8, 2, 4, 1])
    halves = pieces_of(lengths, Chunking(1000), threads=2, packed=packed, longest=128)
    assert [piece.positions.tolist() for piece in halves] == [part.tolist() for part in shared_out(lengths, 2, packed=packed)]
    assert len(pieces_of(lengths, Chunking(1000), threads=1, packed=packed, longest=128)) == 1
    assert len(pieces_of(lengths[:1], Chunking(1000), threads=2, packed=packed, longest=128)) == 1
