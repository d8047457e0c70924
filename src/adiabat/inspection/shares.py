"""Shares in percent: what is not all or nothing is never shown as either."""


def percent(share: float) -> str:
    """A share with one decimal."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    return "> 99.9 %" if 0.999 < share < 1 else f"{100 * share:.1f} %"


def share_of(count: int, of: int) -> str:
    """A count as a share."""
    return percent(count / of if of else 0.0)
