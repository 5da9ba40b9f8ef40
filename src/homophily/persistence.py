"""Fitted estimators as files: arrays in safetensors, the rest in JSON. Nothing in them can run code."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from ._version import __version__

__all__ = ["load_estimator", "plain", "replacing", "save_estimator"]

FORMAT = 1
ARRAYS, DESCRIPTION = "model.safetensors", "model.json"


def save_estimator(estimator: Any, folder: Path) -> Path:
    """Write parameters and fitted attributes of ``estimator`` to ``folder``, which must not hold a model yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (ARRAYS, DESCRIPTION):
        if (folder / name).exists():
            raise FileExistsError(f"{folder / name} exists already; choose another folder or remove it first.")
    arrays: dict[str, np.ndarray] = {}
    fitted: dict[str, Any] = {}
    for name, value in vars(estimator).items():
        if name.endswith("_") and not name.startswith("_"):
            fitted[name] = _pack(name, value, arrays)
    params = estimator.get_params(deep=False)
    if not isinstance(params.get("random_state"), (int, np.integer, type(None))):
        params["random_state"] = None  # a generator's state is not part of the model
    description = {
        "format": FORMAT,
        "homophily": __version__,
        "class": type(estimator).__name__,
        "params": {name: plain(value) for name, value in params.items()},
        "fitted": fitted,
    }
    (folder / ARRAYS).write_bytes(save(arrays))
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
    return folder


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a draft to write; it takes the place of ``path`` if nothing went wrong, so that no reader finds a part."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def load_estimator(cls: type, folder: Path) -> Any:
    """Rebuild the estimator of class ``cls`` that :func:`save_estimator` wrote."""
    missing = [name for name in (ARRAYS, DESCRIPTION) if not (folder / name).is_file()]
    if missing:
        hint = f" Did you mean {folder / 'model'}?" if (folder / "model" / DESCRIPTION).is_file() else ""
        raise FileNotFoundError(f"{folder} holds no saved model: {' and '.join(missing)} not found there.{hint}")
    try:
        description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        found = description["class"], description["format"]
        params, fitted = description["params"], description["fitted"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / DESCRIPTION} is not a homophily model description: {error}.") from error
    if found != (cls.__name__, FORMAT):
        raise ValueError(
            f"{folder} holds a {found[0]} in format {found[1]}, expected {cls.__name__} in format {FORMAT}."
        )
    try:
        arrays = load_file(folder / ARRAYS)
    except SafetensorError as error:
        raise ValueError(f"{folder / ARRAYS} is damaged: {error}.") from error
    estimator = cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in params.items()})
    for name, value in fitted.items():
        setattr(estimator, name, _unpack(value, arrays))
    return estimator


def _pack(name: str, value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Put arrays aside under ``name`` and return what JSON is to hold in their place."""
    if sp.issparse(value):
        csr = value.tocsr()
        for part in ("data", "indices", "indptr"):
            arrays[f"{name}/{part}"] = np.ascontiguousarray(getattr(csr, part))
        return {"csr": name, "shape": list(csr.shape)}
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "OU":
            return {"strings": [str(v) for v in value]}
        arrays[name] = np.ascontiguousarray(value)
        return {"array": name}
    if isinstance(value, dict):
        return {"dict": {key: _pack(f"{name}/{key}", item, arrays) for key, item in value.items()}}
    return plain(value)


def _unpack(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    if "strings" in value:
        return np.array(value["strings"], dtype=object)
    if "csr" in value:
        parts = [arrays[f"{value['csr']}/{part}"] for part in ("data", "indices", "indptr")]
        return sp.csr_array(tuple(parts), shape=tuple(value["shape"]))
    return {key: _unpack(item, arrays) for key, item in value["dict"].items()}


def plain(value: Any) -> Any:
    """NumPy scalars and tuples as JSON knows them."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        return [plain(v) for v in value]
    return value
