"""Constants of the statistics that were chosen, not derived, and what supports each of them.

Rows are those of ``scripts/calibrate_statistics.py``, which prints how often intervals and verdicts err with
these values. LOG.md has its tables (2026-11-28), and the pairs of models behind the constants of predictions
(2026-11-26).

=================  ==========  ===========================================================================
constant           unit        evidence
=================  ==========  ===========================================================================
`FEW_LOSSES`       units       "one query in 100 loses all", "some of those with most lose all"
`MUCH`             share       "the same, where 3 in 10 change a little", "the same, where small values
                               halve"
`LIKELY_LOSSES`    units       derived: of 8 expected losses, 6 or more are seen in 81 % (Poisson)
`NOTICED`          share       no row: a changed unit moves pseudo-values of n others by about 1 / n
`FEWEST_CLUSTERS`  clusters    "clusters of 1 to 20 equal queries", 105 queries
`FEWEST_CHANGED`   units       derived: n units all change alike with probability 2^(1 - n), 0.0625 for 5
`LARGEST_BIAS`     deviations  derived: of 10,000 draws, 2 lie beyond an end with this bias
`SPREAD`           multiple    25 pairs of models; "two in five change, by 0.4 times the spread"
`SPREAD_RANGE`     multiples   the lowest and the highest of these pairs
`LOSING`           share       the median of these pairs, which lie between 0.2 and 4 %
`LARGE_LOSS`       share       these pairs
=================  ==========  ===========================================================================

Two runs beside a baseline of one run need a rule of their own ("2 seeds, one baseline"):
`adiabat.stats.quantity.RunSpread.freedom_with`.
"""

FEW_LOSSES = 6
"""With fewer units that lost much, the share of losing units is bounded exactly."""

MUCH = 0.3
"""Share of the most that a unit can lose from which a loss is large: smaller ones, of many units, say nothing
about rare large ones.

A loss of the margin that consists of smaller losses hits so many units that their spread shows it."""

LIKELY_LOSSES = 8.0
"""Of so many expected losses at least `FEW_LOSSES` are seen four times in five."""

NOTICED = 0.1
"""Share of the largest change from which a pseudo-value counts as changed: one changed unit moves those of
all others a little.
"""

FEWEST_CLUSTERS = 10
"""Fewest clusters of shared documents that are drawn whole."""

FEWEST_CHANGED = 6
"""Fewest changed units of a verdict."""

LARGEST_BIAS = 0.8
"""Maximum bias, in standard errors, that BCa corrects: further out an end would depend on the single most
extreme draw.
"""

SPREAD = 0.4
"""Predicted standard deviation of the paired differences, as a multiple of that of the scores."""

SPREAD_RANGE = (0.25, 0.65)
"""The lowest and the highest multiple in earlier tunings."""

LOSING = 0.012
"""Predicted share of queries that lose much."""

LARGE_LOSS = 0.5
"""Predicted share of what it has that a query loses that loses much."""
