"""Padding and token-budget batches."""

import numpy as np
import pytest
import torch

from adiabat.model.batches import TokenBatch, pad, token_budget_batches


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
