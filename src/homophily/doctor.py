"""What this installation is made of and whether it works, to read and to paste into bug reports."""

from __future__ import annotations

import os
import platform
import re
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from ._version import __version__

__all__ = ["anonymous", "examine"]

CORE = ("torch", "numpy", "scipy", "scikit-learn", "pandas", "pyarrow", "joblib", "matplotlib", "typer", "rich")
OPTIONAL = {  # packages that nobody has to install, and what they are for
    "faiss-cpu": "approximate neighbours, for the graph of many rows",
    "distributed": "experiments on a Dask cluster",
    "anndata": "h5ad files",
    "h5py": "HDF5 files",
    "polars": "polars data frames",
}
DEVELOPMENT = ("dev", "docs", "lint", "system", "test")  # extras of those who change homophily
MODULES = {"faiss-cpu": "faiss", "scikit-learn": "sklearn"}  # where a package is imported by another name


def examine() -> dict[str, Any]:
    """Look at everything; nothing that is missing or broken stops it, and only the self-test says what works."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other packages, while they are imported
        found = {
            "homophily": __version__,
            "location": str(Path(__file__).parent),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "packages": {package: _look(package) for package in CORE},
            "optional": _optional(),
            "device": _or_reason(_device),
            "data": _or_reason(_data),
            "self_test": _self_test(),
        }
    return anonymous(found)


def anonymous(found: Any) -> Any:
    """The same with ``~`` for the home folder, whose name is that of its owner, wherever it occurs in a text."""
    if isinstance(found, dict):
        return {key: anonymous(value) for key, value in found.items()}
    if isinstance(found, list):
        return [anonymous(value) for value in found]
    home = os.path.expanduser("~").rstrip("/\\")
    if not isinstance(found, str) or not home or home == "~":
        return found
    return re.sub(rf"{re.escape(home)}(?![\w.-])", "~", found)


def _look(package: str) -> dict[str, Any]:
    """Version of a package, None if it is not installed, and why it cannot be imported if so."""
    try:
        installed = version(package)
    except PackageNotFoundError:
        return {"version": None, "problem": None}
    try:
        import_module(MODULES.get(package, package))
    except Exception as error:  # a package for another NumPy or system may raise anything
        return {"version": installed, "problem": _reason(error)}
    return {"version": installed, "problem": None}


def _optional() -> dict[str, dict[str, Any]]:
    """Packages of our extras, and those of OPTIONAL that are installed all the same."""
    extras, found = _extras(), {}
    for package in dict.fromkeys((*OPTIONAL, *extras)):
        look = _look(package)
        if package in extras or look["version"]:
            install = f'pip install "homophily[{extras[package]}]"' if package in extras else ""
            found[package] = {**look, "use": OPTIONAL.get(package, ""), "install": install}
    return found


def _extras() -> dict[str, str]:
    """The extra that installs each optional package, as the metadata of this installation has it."""
    try:
        lines = requires("homophily") or []
    except PackageNotFoundError:  # imported from a folder, never installed
        lines = []
    pairs = (re.match(r"""([\w.-]+).*\bextra == ['"]([\w-]+)['"]""", line) for line in lines)
    return {pair[1].lower(): pair[2] for pair in pairs if pair and pair[2] not in DEVELOPMENT}


def _device() -> dict[str, Any]:
    import torch

    from .runtime import resolve_device

    cuda = torch.cuda.is_available()
    return {
        "auto": str(resolve_device("auto")),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else [],
        "cuda_version": torch.version.cuda,
        "mps": torch.backends.mps.is_available(),
    }


def _data() -> dict[str, Any]:
    from .datasets import PAPER_DATASETS, available, cache_folder, search_folders

    there = available()
    return {
        "folders": [{"path": str(folder), "exists": folder.is_dir()} for folder in search_folders()],
        "cache": str(cache_folder()),
        "available": there,
        "missing": [name for name in PAPER_DATASETS if name not in there],
    }


def _self_test() -> dict[str, Any]:
    """Select two columns of which the answer is known."""
    try:
        return {"ok": True, "seconds": round(_find_planted_columns(), 2)}
    except Exception as error:  # whatever it is, it is what the report is for
        return {"ok": False, "problem": _reason(error)}


def _find_planted_columns() -> float:
    """Seconds that it took."""
    import numpy as np

    from . import DirichletSelector, PredictiveSelector
    from .datasets import make_toy

    X, _ = make_toy("blobs", n_samples=60, n_noise=6, random_state=0)
    start = time.perf_counter()
    for selector in (PredictiveSelector(2, random_state=0), DirichletSelector(2, max_iter=50, random_state=0)):
        chosen = sorted(selector.fit(X).selected_features_.tolist())
        if chosen != [0, 1]:
            raise RuntimeError(f"expected the columns 0 and 1 to be selected, got {chosen}")
        if selector.graph_ is None or not np.allclose(selector.graph_.sum(axis=1), 1):
            raise RuntimeError("the rows of the graph do not sum to 1")
    return time.perf_counter() - start


def _or_reason(look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return look()
    except Exception as error:  # torch that does not load, a folder that cannot be read
        return {"problem": _reason(error)}


def _reason(error: Exception) -> str:
    """The error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
