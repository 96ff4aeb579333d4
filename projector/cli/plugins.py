"""Cost models of matrix products in modules that a variable names, as Primus's command takes them.

Such a module has a callable for each of its cost models, under the name by which `--gemm-backend` chooses it and with
the contract of the entry points (`projector.costs.backends`).
"""

import re
from collections.abc import Sequence

from projector.errors import InputError, shown

VARIABLE = "PRIMUS_GEMM_BACKEND_PLUGINS"
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


def modules(text: str) -> tuple[str, ...]:
    """Dotted names between commas or semicolons."""
    names = tuple(name.strip() for name in re.split("[,;]", text) if name.strip())
    wrong = next((name for name in names if not _MODULE.fullmatch(name)), None)
    if wrong is not None or not names:
        raise InputError(f"{shown(wrong or text)} is not the name of a module", expected="such as our_package.products")
    return names


def plugged(names: Sequence[str], backend: str | None) -> tuple[str | None, str]:
    """What `--gemm-backend` chooses from these modules, as `module:name`; or None, and why nothing is chosen.

    Raises `InputError` for a module that cannot be imported. None is imported unless a cost model is asked for.
    """
    from projector.costs import GEMM_BACKENDS  # noqa: PLC0415 - for those who set the variable

    if backend is None or backend in GEMM_BACKENDS:
        return None, "--gemm-backend chooses none of its cost models"
    from importlib import import_module  # noqa: PLC0415 - likewise

    for name in names:
        try:
            module = import_module(name)
        except Exception as error:
            message = f"{name} cannot be imported: {type(error).__name__}: {error}"
            raise InputError(message, place=VARIABLE, expected="mend the module, or unset the variable") from error
        if callable(getattr(module, backend, None)):
            return f"{name}:{backend}", ""
    return None, f"none of its modules has {shown(backend)}"
