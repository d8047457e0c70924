"""Batches that form under way: one thread embeds the texts of all requests that wait, tower by tower."""

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float32

from adiabat.core.errors import AdiabatError
from adiabat.data.records import Side
from adiabat.models.encoder import Encoder

Vectors = Float32[np.ndarray, "n e"]


class BusyError(AdiabatError):
    """Too many texts wait already."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """The answer to a request.

    Attributes:
        tokens: Of all of its texts, prompts and special tokens included.
    """

    vectors: Vectors
    tokens: int


@dataclass(frozen=True, slots=True)
class _Asked:
    encoder: Encoder
    side: Side
    texts: Sequence[str]
    answer: "Future[Embedded]"

    def goes_with(self, other: "_Asked") -> bool:
        return self.encoder is other.encoder and self.side == other.side


AT_ONCE = 1_024
"""Tokens, including padding, that are embedded as one batch by all threads of torch."""


@dataclass
class Batcher:
    """Embeds texts of many requests.

    No request waits for others to come: a batch holds what has come while the former one was embedded.

    Attributes:
        most_waiting: Most texts that wait.
        batch_texts: Most texts of a batch of several requests; one request may be larger.
        threads: Threads of torch that embed; None leaves their number.
    """

    most_waiting: int
    batch_texts: int
    threads: int | None = None
    _waiting: "deque[_Asked]" = field(default_factory=deque)
    _count: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _ended: bool = False
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to embed."""
        self._thread = threading.Thread(target=self._run, name="embedding", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Embed what waits, then end."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    @property
    def waiting(self) -> int:
        """Texts that wait."""
        return self._count

    def submit(self, encoder: Encoder, texts: Sequence[str], *, side: Side) -> "Future[Embedded]":
        """Ask for the vectors of texts.

        Raises:
            BusyError: If they would be too many that wait.
        """
        answer: Future[Embedded] = Future()
        with self._changed:
            if self._ended or self._count + len(texts) > self.most_waiting:
                raise BusyError(
                    f"{self._count:,} texts wait already, of at most {self.most_waiting:,}; ask again later"
                )
            self._waiting.append(_Asked(encoder, side, texts, answer))
            self._count += len(texts)
            self._changed.notify()
        return answer

    def _run(self) -> None:
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        while batch := self._next():
            try:
                answers = _embedded(batch)
            # Whatever goes wrong is the answer to those who asked; the thread goes on for all others.
            except BaseException as fault:
                for asked in batch:
                    asked.answer.set_exception(fault)
                continue
            for asked, answer in zip(batch, answers, strict=True):
                asked.answer.set_result(answer)

    def _next(self) -> list[_Asked]:
        """The requests to embed together; empty at the end."""
        with self._changed:
            while True:
                while not self._waiting and not self._ended:
                    self._changed.wait()
                batch = self._taken()
                # All that waited may have been given up meanwhile.
                if batch or self._ended:
                    return batch

    def _taken(self) -> list[_Asked]:
        batch: list[_Asked] = []
        count = 0
        others: deque[_Asked] = deque()
        while self._waiting:
            asked = self._waiting.popleft()
            fits = not batch or (asked.goes_with(batch[0]) and count + len(asked.texts) <= self.batch_texts)
            if not fits:
                others.append(asked)
                continue
            self._count -= len(asked.texts)
            # False for a request that was given up while it waited.
            if asked.answer.set_running_or_notify_cancel():
                batch.append(asked)
                count += len(asked.texts)
        self._waiting = others
        return batch


def _embedded(batch: Sequence[_Asked]) -> list[Embedded]:
    """The answers to requests of one tower, in one pass.

    Texts are tokenised here, in the one thread: a tokenizer cannot cut at two limits at once.
    """
    encoder, side = batch[0].encoder, batch[0].side
    tokens = encoder.tokenize([text for asked in batch for text in asked.texts], side=side)
    if len(tokens) * int(tokens.lengths.max()) <= AT_ONCE:
        # `encode_tokens` starts threads for its batches, which take longer than a short one.
        with torch.inference_mode():
            vectors = encoder(encoder.collate(tokens, side=side)).cpu().numpy()
    else:
        lists = [tokens[number].tolist() for number in range(len(tokens))]
        vectors = encoder.encode_tokens(lists, skipped=encoder.unpooled_tokens(side), precision="fp32")
    answers, start = [], 0
    for asked in batch:
        rows = slice(start, start + len(asked.texts))
        answers.append(Embedded(np.asarray(vectors[rows]), int(tokens.lengths[rows].sum())))
        start = rows.stop
    return answers
