"""Threads that share out jobs, and the copies of a model that they run."""

import contextlib
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from adiabat.models.bulk import _Pass
from adiabat.models.device import Precision, autocast, parallel_map, thread_replicas
from adiabat.models.encoder import Encoder
from adiabat.models.tokens import TokenBatch, token_budget_batches
from tests.tiny import KINDS, Kind, tiny_encoder

TEXTS = [f"{'word ' * (number % 7)}number {number}" for number in range(40)]
BUDGET = 100
THREADS = 4


@pytest.fixture(autouse=True)
def four_threads() -> Iterator[None]:
    """As many threads as these tests speak of, on whatever machine; each test must leave that number
    alone.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    left = torch.get_num_threads()
    torch.set_num_threads(before)
    assert left == THREADS


def threads_of_a_new_thread() -> int:
    found: list[int] = []
    asking = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    asking.start()
    asking.join()
    return found[0]


def plainly(encoder: Encoder, precision: Precision) -> np.ndarray:
    """The same batches one after the other in this thread, through the encoder itself."""
    token_ids = encoder.tokenize(TEXTS, side="query")
    vectors = np.empty((len(TEXTS), encoder.width), dtype=np.float32)
    torch.set_num_threads(1)
    with torch.inference_mode(), autocast(encoder.device, precision):
        for rows in token_budget_batches(token_ids.lengths, BUDGET):
            vectors[rows] = encoder(encoder.collate(token_ids.take(rows), side="query")).numpy()
    torch.set_num_threads(THREADS)
    return vectors


class Tied(nn.Module):
    """An embedding table that a linear layer uses again."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 3)
        self.tied = nn.Linear(3, 5)
        self.tied.weight = self.table.weight


def test_results_come_in_the_order_of_the_jobs() -> None:
    second_is_done = threading.Event()

    def square(job: int) -> int:
        if job == 0:
            assert second_is_done.wait(10)
        if job == 1:
            second_is_done.set()
        return job * job

    with parallel_map([square] * 2) as results:
        assert list(results(range(20))) == [job * job for job in range(20)]


def test_as_many_jobs_run_at_once_as_there_are_functions() -> None:
    meeting = threading.Barrier(3, timeout=10)
    with parallel_map([lambda job: meeting.wait()] * 3) as results:
        assert sorted(results(range(3))) == [0, 1, 2]


def test_jobs_are_drawn_only_a_few_ahead() -> None:
    drawn: list[int] = []

    def jobs() -> Iterator[int]:
        for job in range(1000):
            drawn.append(job)
            yield job

    with parallel_map([abs, abs]) as results:
        next(results(jobs()))
    assert len(drawn) == 5


@pytest.mark.parametrize(("functions", "share"), [(1, 4), (2, 2), (3, 1), (8, 1)])
def test_the_threads_of_torch_are_shared_out_and_given_back(functions: int, share: int) -> None:
    with parallel_map([lambda job: torch.get_num_threads()] * functions) as results:
        assert set(results(range(10))) == {share}
    assert torch.get_num_threads() == threads_of_a_new_thread() == THREADS


def test_an_error_in_a_job_reaches_the_caller_and_drops_what_waits() -> None:
    done: list[int] = []

    def job_zero_fails(job: int) -> None:
        if job == 0:
            raise ZeroDivisionError("job 0")
        done.append(job)

    with pytest.raises(ZeroDivisionError, match="job 0"), parallel_map([job_zero_fails]) as results:
        list(results(range(1000)))
    assert len(done) <= 2
    assert threads_of_a_new_thread() == THREADS


def test_an_interrupt_in_the_caller_ends_the_threads() -> None:
    def interrupted() -> None:
        with parallel_map([abs, abs]) as results:
            next(results(range(1000)))
            raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert threading.active_count() == before
    assert threads_of_a_new_thread() == THREADS


def test_float32_copies_share_every_weight_and_no_module() -> None:
    encoder = tiny_encoder()
    (copy,) = thread_replicas(encoder, 1, precision="fp32", shared=[encoder.tokenizer])
    assert copy.tokenizer is encoder.tokenizer
    assert all(one is other for one, other in zip(copy.parameters(), encoder.parameters(), strict=True))
    assert not {id(part) for part in copy.modules()} & {id(part) for part in encoder.modules()}


def test_bfloat16_copies_share_one_conversion_of_the_linear_layers_alone() -> None:
    encoder = tiny_encoder()
    one, other = thread_replicas(encoder, 2, precision="bf16", shared=[encoder.tokenizer])
    assert all(mine is yours for mine, yours in zip(one.parameters(), other.parameters(), strict=True))
    for part in one.modules():
        expected = torch.bfloat16 if type(part) is nn.Linear else torch.float32
        assert all(weights.dtype == expected for weights in part.parameters(recurse=False))
    assert all(weights.dtype == torch.float32 and weights.requires_grad for weights in encoder.parameters())


def test_weights_tied_to_a_table_stay_float32_and_tied() -> None:
    (copy,) = thread_replicas(Tied(), 1, precision="bf16")
    assert copy.table.weight is copy.tied.weight
    assert copy.table.weight.dtype == torch.float32
    assert copy.tied.bias.dtype == torch.bfloat16


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
def test_encoding_side_by_side_gives_every_bit_of_one_thread(kind: Kind, precision: Precision) -> None:
    encoder = tiny_encoder(kind, projection=7)
    expected = plainly(encoder, precision)
    for _ in range(2):
        vectors = encoder.encode(TEXTS, side="query", precision=precision, token_budget=BUDGET)
        np.testing.assert_array_equal(vectors, expected)


def test_batches_are_embedded_in_several_threads_without_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = threading.Barrier(THREADS, timeout=10)
    plain_forward = Encoder.forward
    seen: list[bool] = []

    def forward(self: Encoder, batch: object) -> object:
        if len(seen) < THREADS:
            meeting.wait()
        seen.append(torch.is_inference_mode_enabled())
        return plain_forward(self, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(Encoder, "forward", forward)
    encoder = tiny_encoder()
    encoder.encode(TEXTS[:THREADS], side="query", precision="fp32", token_budget=1)
    assert seen == [True] * THREADS


def test_a_function_runs_one_job_at_a_time() -> None:
    class Counting:
        running = most = 0

        def __call__(self, job: int) -> int:
            self.running += 1
            self.most = max(self.most, self.running)
            torch.ones(200, 200) @ torch.ones(200, 200)
            self.running -= 1
            return job

    functions = [Counting(), Counting()]
    with parallel_map(functions) as results:
        list(results(range(60)))
    assert max(one.most for one in functions) == 1


def test_threads_keep_their_share_where_other_work_changes_the_number_before_their_first_job() -> None:
    def working(number: int) -> int:
        # The first operation of a thread is where torch would take over the number set last.
        torch.ones(number).sum()
        return torch.get_num_threads()

    with parallel_map([working] * 2) as run:
        torch.set_num_threads(THREADS)
        assert list(run([3, 3, 3, 3])) == [THREADS // 2] * 4


@pytest.mark.usefixtures("graphs")
def test_compiled_blocks_encode_alike_and_leave_the_encoder_alone() -> None:
    encoder = tiny_encoder("bert", layers=2)
    expected = encoder.encode(TEXTS, side="query", precision="fp32", token_budget=BUDGET)
    found = encoder.encode(TEXTS, side="query", precision="fp32", token_budget=BUDGET, compiled=True)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert not any("forward" in vars(block) for block in encoder.modules())


def test_a_batch_beyond_a_gpus_memory_passes_in_halves_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = tiny_encoder("bert")
    tokens = encoder.collate(encoder.tokenize(TEXTS, side="query"), side="query")
    one = encoder.collate(encoder.tokenize(TEXTS[:1], side="query"), side="query")
    expected, passed = encoder(tokens).detach(), []

    def short_of_memory(self: Encoder, batch: TokenBatch) -> torch.Tensor:
        if len(batch.layout.lengths) > len(TEXTS) // 2 + 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        passed.append(len(batch.layout.lengths))
        return forward(self, batch)

    forward = Encoder.forward
    monkeypatch.setattr(Encoder, "forward", short_of_memory)
    on_gpu = _Pass(encoder, "fp32", limit=128)
    monkeypatch.setattr(Encoder, "device", property(lambda self: torch.device("cuda")))
    monkeypatch.setattr("adiabat.models.bulk.autocast", lambda device, precision: contextlib.nullcontext())
    monkeypatch.setattr("adiabat.models.encoder.without_plans", lambda device: contextlib.nullcontext())
    with pytest.warns(UserWarning, match="does not fit in the free memory of the GPU"):
        first = on_gpu((np.arange(len(TEXTS)), tokens))
    second = on_gpu((np.arange(len(TEXTS)), tokens))
    assert passed == [len(TEXTS) // 2, len(TEXTS) - len(TEXTS) // 2] * 2
    for found in (first, second):
        np.testing.assert_allclose(found.embeddings(), expected.numpy(), atol=1e-6)
    monkeypatch.setattr(Encoder, "forward", lambda self, batch: short_of_memory(self, tokens))
    # A single text cannot be halved: the error names the setting at the door.
    with pytest.raises(torch.OutOfMemoryError):
        _Pass(encoder, "fp32", limit=128)((np.arange(1), one))
