"""Former module names that scripts outside the repository import; this file goes when 0.1.0 is released."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

RENAMED = {"build_lexical": "build_bm25"}
"""Former and present names of functions in these modules."""

FORMER = {
    "adiabat.errors": "adiabat.core.errors",
    "adiabat.model.directory": "adiabat.models.loading",
    "adiabat.model.packing": "adiabat.training.blocks",
    "adiabat.store.imports": "adiabat.store.ingestion",
    "adiabat.store.lexical": "adiabat.store.bm25",
}
"""Former and present names of modules."""


class _Former(Loader):
    """Loads a module that looks its names up in the present module; a former package is empty."""

    def exec_module(self, module: ModuleType) -> None:
        """Give the module the names of the present one."""
        if module.__name__ in FORMER:
            present = import_module(FORMER[module.__name__])

            def find(name: str) -> object:
                return getattr(present, RENAMED.get(name, name))

            vars(module)["__getattr__"] = find


class FormerNames(MetaPathFinder):
    """Finds former modules and packages once every other finder has failed."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a former module or package of adiabat."""
        is_package = any(name.startswith(f"{fullname}.") for name in FORMER)
        if fullname.startswith("adiabat.") and (fullname in FORMER or is_package):
            return ModuleSpec(fullname, _Former(), is_package=is_package)
        return None


def install() -> None:
    """Resolve former module names when an import fails."""
    sys.meta_path.append(FormerNames())
