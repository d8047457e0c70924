"""What `adiabat` exports: one file a verb."""


def __getattr__(name: str) -> object:
    """A public function by its former place."""
    import adiabat

    if name not in adiabat.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(adiabat, name)
