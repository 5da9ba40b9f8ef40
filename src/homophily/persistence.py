"""Fitted estimators as files: arrays in safetensors, the rest in JSON. Nothing in them can run code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from safetensors.numpy import load_file, save

from ._version import __version__
from .drafts import replacing
from .shapes import check_values
from .wording import listing

__all__ = ["load_estimator", "plain", "save_estimator"]

FORMAT = 2  # 1 had no checksum
ARRAYS, DESCRIPTION = "model.safetensors", "model.json"


def save_estimator(estimator: Any, folder: Path) -> Path:
    """Write parameters and fitted attributes of ``estimator`` to ``folder``, which must not hold a model yet.

    Both files are there in the end, or none.
    """
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
    packed = save(arrays)
    description = {
        "format": FORMAT,
        "homophily": __version__,
        "class": type(estimator).__name__,
        "params": {name: plain(value) for name, value in params.items()},
        "fitted": fitted,
        "sha256": hashlib.sha256(packed).hexdigest(),  # of the arrays
    }
    text = json.dumps(description, indent=2) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with replacing(folder / ARRAYS) as draft:
            draft.write_bytes(packed)
        with replacing(folder / DESCRIPTION) as draft:  # the last to appear: without it there is no model
            draft.write_text(text, encoding="utf-8")
    except BaseException:
        (folder / ARRAYS).unlink(missing_ok=True)
        raise
    return folder


def load_estimator(cls: Any, folder: Path) -> Any:
    """Rebuild the estimator of class ``cls`` that :func:`save_estimator` wrote.

    What the files hold is checked before it is used: they may be damaged, of another version, or a stranger's.
    """
    missing = [name for name in (ARRAYS, DESCRIPTION) if not (folder / name).is_file()]
    if missing:
        hint = f" Did you mean {folder / 'model'}?" if (folder / "model" / DESCRIPTION).is_file() else ""
        raise FileNotFoundError(f"{folder} holds no saved model: {' and '.join(missing)} not found there.{hint}")
    params, fitted, sha256 = _described(cls, folder)
    with _explained(folder / ARRAYS, "damaged"):
        with (folder / ARRAYS).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if sha256 not in (None, found):
            raise ValueError(f"its SHA-256 is {found}, expected {sha256}: save the model again, or copy it whole")
        arrays = load_file(folder / ARRAYS)
    with _explained(folder / DESCRIPTION, f"not the description of a {cls.__name__}"):
        estimator = cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in params.items()})
        estimator._validate_params()
        values = {name: _unpack(value, arrays) for name, value in fitted.items()}
        expected = cls._fitted
        unknown = [name for name in values if name not in expected]
        if unknown:
            raise ValueError(f"it has an attribute {unknown[0]!r}, expected some of {listing(expected, 30)}")
        n_features = values.get("n_features_in_")
        if type(n_features) is not int or n_features < 1:
            raise ValueError(f"n_features_in_ is {n_features!r}, expected a whole number of at least 1")
        check_values(values, expected, {"d": n_features})
        names = list(values.get("feature_names_in_", ()))
        if len(set(names)) < len(names):
            raise ValueError("several features have the same name, expected names that are unique")
    for name, value in values.items():
        setattr(estimator, name, value)
    return estimator


def _described(cls: type, folder: Path) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """Parameters, fitted attributes and the checksum of the arrays, which format 1 does not have."""
    with _explained(folder / DESCRIPTION, "not a homophily model description"):
        description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        kind, version = description["class"], description["format"]
    if kind != cls.__name__ or version not in (1, FORMAT):
        raise ValueError(
            f"{folder} holds a {str(kind)[:50]} in format {str(version)[:50]}, expected {cls.__name__} in format "
            f"{FORMAT} or 1."
        )
    with _explained(folder / DESCRIPTION, "not a homophily model description"):
        params, fitted = description["params"], description["fitted"]
        sha256 = None if version == 1 else description["sha256"]
        if not isinstance(params, dict) or not isinstance(fitted, dict):
            raise TypeError("params and fitted should be dicts")
        if version != 1 and not isinstance(sha256, str):  # or there would be no check
            raise TypeError(f"sha256 should be text, got {str(sha256)[:50]!r}")
        known = cls().get_params(deep=False)
        unknown = [name for name in params if name not in known]
        if unknown:
            raise ValueError(f"{cls.__name__} has no parameter {unknown[0]!r}; it has {listing(sorted(known), 30)}")
    return params, fitted, sha256


@contextmanager
def _explained(path: Path, what: str) -> Iterator[None]:
    """Say of which file it is that something is wrong."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # a damaged file makes libraries raise nearly anything
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error).rstrip(".") or type(error).__name__
        raise ValueError(f"{path} is {what}: {why[:500]}.") from error


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
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    if "strings" in value:
        return np.array([str(text) for text in value["strings"]], dtype=object)
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
