"""Padding and token-budget batches."""

import numpy as np
import pytest
import torch

from adiabat.models.tokens import TokenBatch, bucket_batches, filled_up, pad, token_budget_batches


def padded_in_plain_loops(token_ids: list[list[int]], fill: int, skipped: int) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    longest = max(len(ids) for ids in token_ids)
    rows, attended, pooled = [], [], []
    for ids in token_ids:
        rows.append(ids + [fill] * (longest - len(ids)))
        attended.append([1] * len(ids) + [0] * (longest - len(ids)))
        left_out = min(skipped, len(ids) - 1)
        pooled.append([0] * left_out + [1] * (len(ids) - left_out) + [0] * (longest - len(ids)))
    return rows, attended, pooled


def test_rows_are_filled_on_the_right() -> None:
    batch = pad([[5, 6, 7], [8]], pad_token_id=1)
    assert batch.input_ids.tolist() == [[5, 6, 7], [8, 1, 1]]
    assert batch.attention_mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch.pooling_mask.tolist() == batch.attention_mask.tolist()


@pytest.mark.parametrize("skipped", [0, 1, 3, 100])
@pytest.mark.parametrize("token_ids", [[[4]], [[4, 5, 6, 7], [8, 9], [3]], [[2, 2], [2, 2]]], ids=["one token", "ragged", "even"])
def test_padding_equals_plain_loops(token_ids: list[list[int]], skipped: int) -> None:
    batch = pad(token_ids, pad_token_id=0, skipped=skipped)
    rows, attended, pooled = padded_in_plain_loops(token_ids, 0, skipped)
    assert batch.input_ids.tolist() == rows
    assert batch.attention_mask.tolist() == attended
    assert batch.pooling_mask.tolist() == pooled


def test_tokens_at_the_end_may_be_left_out_of_pooling_too() -> None:
    batch = pad([[1, 2, 3, 4], [5, 6, 7], [8]], pad_token_id=0, skipped=1, closing=1)
    assert batch.pooling_mask.tolist() == [[0, 1, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0]]


def test_every_row_keeps_a_token_for_pooling_however_long_the_prompt() -> None:
    batch = pad([[1, 2, 3], [4]], pad_token_id=0, skipped=9)
    assert batch.pooling_mask.tolist() == [[0, 0, 1], [1, 0, 0]]


def test_a_padding_id_inside_a_text_still_counts() -> None:
    # Decoders pad with their end-of-text token, which may stand in a text as well.
    assert pad([[2, 2], [2]], pad_token_id=2).attention_mask.tolist() == [[1, 1], [1, 0]]


def test_a_batch_on_its_device_already_is_the_same_object() -> None:
    batch = pad([[1]], pad_token_id=0)
    assert batch.to(torch.device("cpu")) is batch


def test_a_batch_moves_all_its_parts() -> None:
    moved = pad([[1, 2], [3]], pad_token_id=0, skipped=1).to(torch.device("meta"))
    assert isinstance(moved, TokenBatch)
    assert {part.device.type for part in (moved.input_ids, moved.attention_mask, moved.pooling_mask)} == {"meta"}


def random_lengths(count: int, seed: int) -> list[int]:
    return [int(length) for length in np.random.default_rng(seed).integers(1, 200, count)]


@pytest.mark.parametrize("budget", [1, 64, 512, 10**6])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_row_comes_once(seed: int, budget: int) -> None:
    lengths = random_lengths(157, seed)
    rows = np.concatenate(list(token_budget_batches(lengths, budget)))
    assert sorted(rows.tolist()) == list(range(157))


@pytest.mark.parametrize("budget", [64, 512, 4096])
def test_no_batch_of_several_rows_exceeds_the_budget(budget: int) -> None:
    lengths = random_lengths(300, 2)
    batches = list(token_budget_batches(lengths, budget))
    assert all(len(rows) == 1 or len(rows) * max(lengths[row] for row in rows) <= budget for rows in batches)


def test_batches_are_filled_as_far_as_the_budget_allows() -> None:
    lengths = random_lengths(300, 3)
    batches = list(token_budget_batches(lengths, 512))
    for rows in batches[:-1]:
        assert (len(rows) + 1) * max(lengths[row] for row in rows) > 512


def test_longest_texts_come_first() -> None:
    lengths = random_lengths(100, 4)
    order = np.concatenate(list(token_budget_batches(lengths, 256)))
    assert [lengths[row] for row in order] == sorted(lengths, reverse=True)


def test_batches_worked_by_hand() -> None:
    # Sorted: row 1 (5), row 3 (4), row 0 (2), row 2 (2). One row of 5; then 8 // 4 = 2 rows; then the rest.
    assert [rows.tolist() for rows in token_budget_batches([2, 5, 2, 4], 8)] == [[1], [3, 0], [2]]


def test_a_text_longer_than_the_budget_is_a_batch_of_its_own() -> None:
    assert [rows.tolist() for rows in token_budget_batches([3, 50, 3], 10)] == [[1], [0, 2]]


def test_no_texts_give_no_batches() -> None:
    assert list(token_budget_batches([], 100)) == []


def test_equal_lengths_keep_their_order() -> None:
    assert [rows.tolist() for rows in token_budget_batches([4] * 5, 8)] == [[0, 1], [2, 3], [4]]


def test_a_batch_filled_up_by_hand() -> None:
    batch = filled_up(pad([[5, 6, 7], [8]], pad_token_id=9, skipped=1), rows=3, length=4, pad_token_id=9)
    assert batch.input_ids.tolist() == [[5, 6, 7, 9], [8, 9, 9, 9], [9, 9, 9, 9]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    assert batch.pooling_mask.tolist() == [[0, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0]]


def test_filling_a_batch_up_leaves_the_batch_as_it_was() -> None:
    batch = pad([[5, 6], [8, 3]], pad_token_id=9)
    same = filled_up(batch, rows=2, length=2, pad_token_id=9)
    larger = filled_up(batch, rows=3, length=2, pad_token_id=9)
    assert same.input_ids.tolist() == batch.input_ids.tolist() == [[5, 6], [8, 3]]
    assert larger.attention_mask.tolist() == [[1, 1], [1, 1], [1, 0]]
    assert batch.attention_mask.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(("rows", "length"), [(1, 3), (2, 2)])
def test_a_batch_is_never_cut_to_a_shape(rows: int, length: int) -> None:
    with pytest.raises(ValueError, match=f"a batch must fit {rows} rows of {length} tokens, got 2 of 3"):
        filled_up(pad([[1, 2, 3], [4]], pad_token_id=0), rows=rows, length=length, pad_token_id=0)


def test_buckets_worked_by_hand() -> None:
    # 3 and 4 go to 4; 5 to 8; 130 to the second multiple of 128; 300 to the third, cut at 310. 16 tokens are 4 rows of 4, 2 of 8.
    found = list(bucket_batches([3, 130, 5, 4, 300, 1, 2, 4], 16, (4, 8), longest=310))
    assert [(rows.tolist(), shape) for rows, shape in found] == [
        ([4], (1, 310)),
        ([1], (1, 256)),
        ([2], (2, 8)),
        ([0, 3, 5, 6], (4, 4)),
        ([7], (4, 4)),
    ]


@pytest.mark.parametrize("buckets", [(64, 128, 196, 256), (10,), (199, 200)])
@pytest.mark.parametrize("budget", [1, 256, 4096])
def test_every_row_comes_once_in_the_smallest_bucket_that_holds_it(buckets: tuple[int, ...], budget: int) -> None:
    lengths = random_lengths(157, 1)
    allowed = sorted({*buckets, 128, 256})
    seen = []
    for rows, (height, length) in bucket_batches(lengths, budget, buckets, longest=512):
        assert len(rows) <= height == max(1, budget // length)
        for row in rows:
            inside = [bucket for bucket in buckets if bucket >= lengths[row]]
            assert length == (min(inside) if inside else min(bucket for bucket in allowed if bucket % 128 == 0 and bucket >= lengths[row]))
        seen += rows.tolist()
    assert sorted(seen) == list(range(157))


def test_no_bucket_is_longer_than_the_limit() -> None:
    assert {shape[1] for _, shape in bucket_batches([1, 40, 50], 64, (64, 128), longest=50)} == {50}
