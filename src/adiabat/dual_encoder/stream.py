"""A stream as a sequence of shards: read at their first step, planned like data in memory, and deleted when
no checkpoint needs them.

``shards.jsonl`` has a row for each shard read so far. A shard can be read again byte for byte from its row
and the sources, so that a resumed run continues exactly.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
from jaxtyping import Int

from adiabat.config.dual_training import TrainSettings
from adiabat.config.section import MixtureRule
from adiabat.core.disk import clear, make_folder
from adiabat.core.errors import DataError, JobError
from adiabat.core.progress import SILENT, Watch
from adiabat.core.text import cut_middle
from adiabat.core.wording import option
from adiabat.data.batch_sampler import drawn_counts, shard_seed, source_weights
from adiabat.data.examples import ExampleReader, SourcePosition
from adiabat.data.pair_sets import PairBuilder, PairSet, joined
from adiabat.data.records import Example
from adiabat.data.text_hashes import TrainedTexts, hash_texts
from adiabat.dual_encoder.batches import Shard, check_negatives, drawn_note
from adiabat.dual_encoder.pair_data import MAKING, Number, numbered_pairs, trained_pairs, watched
from adiabat.dual_encoder.stream_shards import (
    ROWS,
    Part,
    Row,
    Sources,
    append_row,
    read_rows,
    texts_of,
    whole_rows,
    write_texts,
)
from adiabat.dual_encoder.text_cache import BatchPlan
from adiabat.models.model_names import packed
from adiabat.runs.run_log import plain_faults
from adiabat.store.vector_store import Store
from adiabat.training.distributed import ALONE, Processes, on_main

Planner = Callable[[PairSet, Shard], BatchPlan]
"""Plans the batches of a shard."""


def shard_name(number: int) -> str:
    """Folder name of a shard; names sort by number."""
    return f"shard-{number:06d}"


class Stream:
    """The shards of a run.

    The main process reads the sources and appends the rows; the others open what it wrote. Before the job has
    a directory, each process reads the first shard itself.
    """

    def __init__(
        self,
        settings: TrainSettings,
        *,
        validation: Iterable[str] = (),
        store: Store | None = None,
        folder: Path | None = None,
        processes: Processes = ALONE,
        watch: Watch = SILENT,
    ) -> None:
        """Read the rows of earlier shards, and no data yet.

        Args:
            folder: Folder of a resumed job; None keeps shards in memory until `keep_in` is called.
        """
        listed = settings.data.listed(settings.job.data)
        rule: MixtureRule = settings.mixture.rule.kind if settings.data.sources else "equal"
        # Sizes are unknown, so that rules which depend on them are refused with the settings.
        weights = source_weights([1] * len(listed), rule=rule, weights=[source.weight for source in listed])
        tapes = [
            ExampleReader(source.path, split=source.split, columns=source.columns.given())
            for source in listed
        ]
        self.name = " + ".join(tape.name for tape in tapes)
        self.paths = [source.path for source in listed]
        assert settings.data.stream is not None
        self._sources = Sources(tapes, weights, settings.data.stream.shard_size, settings.mixture.exhausted)
        self._validation = hash_texts(list(validation))
        self._settings = settings
        self._store = store
        self._folder = folder
        self._unwritten: dict[int, bytes] = {}
        self._processes = processes
        self._watch = watch
        self._planned: BatchPlan | None = None
        self.rows: list[Row] = [] if folder is None else read_rows(folder / ROWS)
        """Rows of all shards read so far, in order."""

    def newest(self, planner: Planner) -> BatchPlan:
        """Plan of the last shard with a step; the first shard is read if there is none."""
        return self.plan(max((row.first for row in self.rows if row.steps), default=0), planner)

    def plan(self, step: int, planner: Planner) -> BatchPlan:
        """Plan of the shard that holds a step."""
        while True:
            for row in reversed(self.rows):
                if row.first <= step < row.first + row.steps:
                    return self._plan_of(row, planner)
            if self.rows and self.rows[-1].last:
                raise JobError(
                    f"{self.name} must have pairs for step {step}, got none: the "
                    "sources ran out; lower train.steps"
                )
            self._go_on(planner)

    def _plan_of(self, row: Row, planner: Planner) -> BatchPlan:
        """The plan of a row's shard: the one just made to write the row, or a new one."""
        plan, self._planned = self._planned, None
        shard = self._shard(row.shard, row.first, row.parts)
        if plan is None or plan.shard != shard:
            plan = planner(self._again(row), shard)
        return plan

    def ending(self, step: int, planner: Planner) -> str | None:
        """Why the run ends at a step, if `mixture.exhausted` is stop and a source has run out; may read
        another shard to find out.
        """
        if self._settings.mixture.exhausted != "stop":
            return None
        # Whether the sources run out is known once the next shard has been read.
        while not self.rows or (self.rows[-1].first + self.rows[-1].steps <= step and not self.rows[-1].last):
            self._go_on(planner)
        row = self.rows[-1]
        if not row.last or step < row.first + row.steps:
            return None
        ended = [path for path, part in zip(self.paths, row.parts, strict=True) if part.end.ended]
        return f"{cut_middle(ended[0], limit=40)} ran out, and mixture.exhausted is stop"

    def keep_in(self, folder: Path) -> None:
        """Keep shards in a folder from here on; the caller must hold the lock of the job."""

        def begin() -> None:
            with plain_faults(folder / ROWS):
                make_folder(folder, parents=True)
                clear(*folder.glob(f"{MAKING}*"))
            for row in self.rows[len(whole_rows(folder / ROWS)) :]:
                write_texts(folder, row.shard, self._unwritten.pop(row.shard))
                append_row(folder / ROWS, row)

        on_main(self._processes, begin)
        self._folder = folder

    def forget(self, shard: Shard, *others: Path) -> None:
        """Delete the shards before one, which no checkpoint needs."""
        if not self._processes.is_main:
            return
        for folder in filter(None, (self._folder, *others)):
            for old in folder.glob("shard-*"):
                if old.is_dir() and old.name < shard_name(shard.number):
                    clear(old)

    def _again(self, row: Row) -> PairSet:
        """The pairs of a row, read again from the sources if necessary."""
        starts = [part.start for part in row.parts]

        def read() -> PairSet:
            pairs = self._read(row.shard, starts)[0]
            if pairs.digest() != row.sha256:
                raise DataError(
                    f"{self.name}: shard {row.shard} must hold the pairs of its "
                    "first reading, got other pairs; "
                    "restore the sources, or start again"
                )
            return pairs

        if self._folder is None:
            return read()
        remade = on_main(self._processes, read)
        return remade if remade is not None else self._kept(row.shard, _nobody)

    def _go_on(self, planner: Planner) -> None:
        """Read the next shard and append its row; without a folder, each process reads the sources itself."""
        folder = self._folder

        def read() -> None:
            row = self._next(planner)
            if folder is not None:
                append_row(folder / ROWS, row)
            self.rows.append(row)

        if folder is None:
            read()
            return
        on_main(self._processes, read)
        if not self._processes.is_main:
            self.rows = read_rows(folder / ROWS)

    def _next(self, planner: Planner) -> Row:
        """Read the shard after the last one, plan it, and keep the hashes of its texts.

        A shard whose pairs fill no batch gets a row with 0 steps; two in a row, or a first one, are refused.
        """
        before = self.rows[-1] if self.rows else None
        starts = [part.end for part in before.parts] if before else [SourcePosition()] * len(self.paths)
        number, first = (before.shard + 1, before.first + before.steps) if before else (0, 0)
        if self._folder is not None:
            # A run may have been killed before it recorded where the shard ended.
            clear(self._folder / shard_name(number))
        pairs, parts = self._read(number, starts)
        check_negatives(pairs, self._settings.train)
        shard = self._shard(number, first, parts)
        plan = planner(pairs, shard) if shard.mixture(pairs).counts.any() else None
        steps = 0 if plan is None else len(plan.steps)
        if not steps and (before is None or not before.steps) and not self._sources.is_last(parts):
            raise DataError(
                f"{self.name}: a shard must fill a batch of {self._settings.train.batch_size} "
                "under the rules of [batches], "
                f"but its {len(pairs):,} pairs fill none; raise data.stream.shard_size, "
                "lower train.batch_size, or relax the rules"
            )
        drawn = np.zeros(len(parts), dtype=np.int64)
        if plan is not None and steps:
            # With several processes, each opens the plan from disk, including the process that wrote it.
            self._planned = plan if self._folder is None or self._processes.count == 1 else None
            drawn = drawn_counts(
                plan.sampler, pairs.sources, steps=range(first, first + steps), count=len(parts)
            )
        unused = 0 if plan is None else plan.sampler.pairs - int(drawn.sum())
        texts, content = packed(trained_pairs(pairs, self._store))
        if self._folder is None:
            # The job has no directory yet; `keep_in` writes the hashes there.
            self._unwritten[number] = content
        else:
            write_texts(self._folder, number, content)
        return Row(
            shard=number,
            first=first,
            steps=steps,
            pairs=len(pairs),
            left=unused,
            validated=int(np.isin(hash_texts(list(pairs.texts.queries)), self._validation).sum()),
            drawn=tuple(drawn.tolist()),
            sha256=pairs.digest(),
            last=self._sources.is_last(parts),
            parts=parts,
            texts=texts,
        )

    def _shard(self, number: int, first: int, parts: Sequence[Part]) -> Shard:
        """What distinguishes the pass over a shard; it follows from the row and the settings."""
        return Shard(number, shard_seed(self._settings.run.seed, number), first, self._sources.times(parts))

    def _read(self, number: int, starts: Sequence[SourcePosition]) -> tuple[PairSet, tuple[Part, ...]]:
        """The pairs of a shard, and the part that each source had in it; without parts if its folder held
        the pairs.
        """
        parts: tuple[Part, ...] = ()

        def read(builder: PairBuilder) -> list[str]:
            nonlocal parts

            # One count over all sources, since the total is that of the shard.
            counter = count()

            def take(examples: Iterator[Example], source: int) -> None:
                seen = watched(
                    examples,
                    self._watch,
                    label=f"reading shard {number}",
                    total=self._sources.size,
                    counter=counter,
                )
                builder.add(seen, of=source)

            parts = self._sources.read(number, starts, take)
            builder.note(remark for tape in self._sources.tapes for remark in tape.remarks())
            return [tape.name for tape in self._sources.tapes]

        return self._kept(number, read), parts

    def _kept(self, number: int, read: Number) -> PairSet:
        """The pairs in a shard's folder, or read into it; without a folder, into memory."""
        folder = None if self._folder is None else self._folder / shard_name(number)
        return replace(
            joined(numbered_pairs(read, folder, advice=f"resume with {option('resume', True)}")),
            name=self.name,
        )

    def drawn(self, steps: int, last: BatchPlan) -> Int[np.ndarray, " s"]:
        """Number of pairs of each source used by the run; a pair drawn twice counts twice."""
        first = last.steps.start
        counts = drawn_counts(
            last.sampler, last.pairs.sources, steps=range(first, steps), count=len(self.paths)
        )
        for row in self.rows:
            if row.first < first:
                counts += row.drawn
        return counts

    def trained(self, steps: int) -> list[TrainedTexts]:
        """Texts of the shards that the run used."""
        assert self._folder is not None
        records = [texts_of(row, self._folder) for row in self.rows if row.steps and row.first < steps]
        for why in filter(None, (record.unknown for record in records)):
            self._watch.note(f"{why}: evaluations cannot exclude all training texts")
        return records

    def notes(self, steps: int, last: BatchPlan) -> list[str]:
        """Notes on the shards read and the share of each source.

        Args:
            steps: Number of steps of the run.
            last: Plan of its last step.
        """
        shards = [row for row in self.rows if row.first <= last.steps.start]
        ends = [f"{part.end.ends:,}" for part in shards[-1].parts]
        notes = [
            f"the stream was read in {len(shards):,} shards, which reached the end of the sources "
            f"{', '.join(ends)} times",
            drawn_note(self.paths, self.drawn(steps, last), self._sources.weights),
        ]
        finished = [row for row in self.rows if row.first + row.steps <= steps]
        if repeated := max(row.validated for row in shards):
            notes.append(
                f"up to {repeated:,} of {len(np.unique(self._validation)):,} validation "
                "queries are also trained on in one shard, "
                "so validation looks better than it is"
            )
        if unused := sum(row.left for row in finished):
            notes.append(
                f"{unused:,} of {sum(row.pairs for row in finished):,} pairs were in no batch of their shard"
            )
        return notes


def _nobody(builder: PairBuilder) -> list[str]:
    """Reads nothing: the main process has read the shard, and the others only open it."""
    del builder
    raise JobError(
        "a shard that the main process read is missing on this machine; put "
        "the job on a disk that all processes share"
    )
