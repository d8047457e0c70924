"""bm25s, imported without JAX, which adiabat does not need.

bm25s computes with JAX on import if it is installed: on a GPU, JAX then reserves three quarters of the memory
for the whole process.
"""

import sys

if "jax" in sys.modules:
    import bm25s
else:
    # None makes `import jax` fail.
    sys.modules["jax"] = None  # type: ignore[assignment]
    try:
        import bm25s
    finally:
        del sys.modules["jax"]

from bm25s import stopwords

__all__ = ["bm25s", "stopwords"]
