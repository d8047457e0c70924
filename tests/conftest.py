"""What every test runs under: no network, and the shape annotations of the whole package checked at each call."""

import os

# Read by the hub's client when it is first imported, so it must come before everything else.
os.environ["HF_HUB_OFFLINE"] = "1"

from jaxtyping import install_import_hook

import tests.checking  # noqa: F401  the hook finds it by name, but only where it is loaded

# Modules imported before this line would go unchecked: nothing above imports the package.
install_import_hook("adiabat", "tests.checking.checked")
