"""A watch over drift while a query tower is tuned: what probe texts find now, beside what they found at the start (mission A12)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from adiabat.config.tune import GuardSection
from adiabat.drift.probes import ProbeSet, read_probes
from adiabat.drift.reading import read_tower
from adiabat.measure.drift import Reading, drift_of
from adiabat.model.encoder import Encoder
from adiabat.model.towers import DualEncoder
from adiabat.store.embeddings import Store


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found.

    Attributes:
        measures: Of drift, over all probes.
        outside: Why the tower must not be the result, in words; None where it may.
    """

    measures: Mapping[str, float] = field(default_factory=dict)
    outside: str | None = None


@dataclass(frozen=True, slots=True)
class Guard:
    """Looks at the drift of a tower.

    Attributes:
        section: Which measure may go how far.
        model: Where tuning starts.
        probes: Unlabelled texts.
        store: Where they are looked for.
        start: What the untuned tower found.
    """

    section: GuardSection
    model: DualEncoder
    probes: ProbeSet
    store: Store
    start: Reading

    @classmethod
    def of(cls, section: GuardSection, model: DualEncoder, store: Store) -> Self:
        """Read the probes, and look at the untuned tower.

        Args:
            section: What is asked for.
            model: Where tuning starts.
            store: Of the job; taken where the section names no other.

        Returns:
            The guard.

        Raises:
            DataError: If the probes are faulty.
            StoreError: If a store that the section names was not made by the document tower of the model.
        """
        probes = read_probes(section.probes)
        if section.store is not None:
            store = Store.open(section.store)
            store.require_encoder(model.fingerprint("document"))
        return cls(section, model, probes, store, read_tower(model, probes, store, depth=section.depth))

    def look(self, tower: Encoder) -> Look:
        """How far a tower has drifted.

        Args:
            tower: The query tower as it is now, in evaluation mode.

        Returns:
            All measures, and whether the one that is guarded is beyond its limit.
        """
        now = read_tower(replace(self.model, query=tower), self.probes, self.store, depth=self.section.depth, start=self.start)
        found = drift_of(self.start, now).means
        name, most = self.section.measure, self.section.most
        if most is None or found[name] <= most:
            return Look(found)
        return Look(found, f"the drift of the probes ({name}) is {found[name]:.3g}, beyond guard.most = {most:g}")
