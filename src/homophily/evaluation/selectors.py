"""Selectors of any make: how many columns they are asked for, their seed, what they chose, and what they are made of.

Whatever has ``fit(X)`` and ``get_support`` will do. The number of features goes into ``n_features_to_select`` or one of
the other names that scikit-learn's selectors have for it; a selector with none of them decides by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import joblib
import numpy as np
from sklearn.base import clone

from ..baselines import AllFeatures
from ..methods import METHODS
from .cell import RANDOM

__all__ = [
    "chosen_features",
    "described",
    "is_nested",
    "named_selectors",
    "number_parameter",
    "prepared",
    "unknown_parameters",
]

VERSIONED = {"homophily", "sklearn", "builtins"}  # what does not change unless a version in the key does
NUMBER = ("n_features_to_select", "max_features", "k")  # what selectors call m
IRRELEVANT = {"verbose", "n_jobs"}  # parameters that do not change the result


def named_selectors(methods: Iterable[str] | Mapping[str, Any], *, with_random: bool = True) -> dict[str, Any]:
    """Unfitted selectors by name, with ``RANDOM`` among them unless that is not wanted."""
    if isinstance(methods, Mapping):
        chosen = dict(methods)
        for name, selector in chosen.items():
            lacking = [need for need in ("fit", "get_support") if not callable(getattr(selector, need, None))]
            if lacking or isinstance(selector, type):
                what = "a class; give an instance" if isinstance(selector, type) else f"without {' and '.join(lacking)}"
                raise TypeError(f"Method {name!r} is {selector!r}, {what}.")
    else:
        methods = list(dict.fromkeys(methods))
        unknown = [name for name in methods if name not in METHODS]
        if unknown:
            raise ValueError(f"There is no method {', '.join(map(repr, unknown))}; known are {', '.join(METHODS)}.")
        chosen = {name: METHODS[name]() for name in methods}
    return {**chosen, RANDOM: METHODS[RANDOM]()} if with_random and RANDOM not in chosen else chosen


def number_parameter(selector: Any) -> str | None:
    """The parameter that says how many columns to select, if there is one."""
    if isinstance(selector, AllFeatures):
        return None
    params = _params(selector)
    return next((name for name in NUMBER if name in params), None)


def unknown_parameters(selector: Any, names: Iterable[str]) -> list[str]:
    """Those of ``names`` that are no parameters; ``a__b`` is one of the estimator ``a``."""
    known = _params(selector)
    return [name for name in dict.fromkeys(names) if name.partition("__")[0] not in known]


def is_nested(selector: Any) -> bool:
    """Whether the m best of one fit are also the first m of a fit that selects more."""
    return bool(getattr(selector, "nested", False))


def prepared(selector: Any, m: int | None, seed: int, params: Mapping[str, Any]) -> Any:
    """A fresh selector with these parameters."""
    fresh = clone(selector, safe=False)
    number = number_parameter(selector)
    given = dict(params)
    if number is not None and m is not None:
        given[number] = m
    if "random_state" in _params(selector):
        given["random_state"] = seed
    if hasattr(fresh, "set_params"):
        fresh.set_params(**given)
    else:
        for name, value in given.items():
            setattr(fresh, name, value)
    return fresh


def chosen_features(selector: Any, m: int | None) -> list[int]:
    """Indices of the columns that a fitted selector chose, the best first if it says so."""
    features = getattr(selector, "selected_features_", None)
    if features is None:
        support = np.asarray(selector.get_support())
        features = np.flatnonzero(support) if support.dtype == bool else support
    features = [int(feature) for feature in features]
    if not features:
        raise ValueError("No column was selected.")
    if len(set(features)) < len(features):  # such as 0 and 1 for no and yes
        raise ValueError("Columns were selected twice; get_support has to return a mask of bool, or indices.")
    ranked = hasattr(selector, "selected_features_")  # then of more the first m will do
    if m is not None and (len(features) < m or (len(features) > m and not ranked)):
        raise ValueError(f"{m} columns were asked for, and {len(features)} were selected.")
    return features


def described(selector: Any, tuned: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Class and parameters, some of them ``tuned``, as far as they change the result, in terms that JSON knows."""
    # Those that are set for each cell are left out, at the top only: nobody sets those of an estimator inside.
    number = "n_features_to_select" if isinstance(selector, AllFeatures) else number_parameter(selector)
    params = {name: value for name, value in _params(selector).items() if name not in {number, "random_state"}}
    return _description(selector, {**params, **(tuned or {})})


def _description(thing: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    kind = type(thing)
    described = {
        "class": _qualified(kind),
        "params": {name: _plain(value) for name, value in params.items() if name not in IRRELEVANT},
    }
    # Classes of somebody's own may be edited between two runs.
    own = [each for each in kind.__mro__ if each.__module__.partition(".")[0] not in VERSIONED]
    if own:
        methods = [entry for each in own for entry in vars(each).values() if isinstance(entry, FunctionType)]
        described["code"] = joblib.hash([_contents(method) for method in methods])
    return described


def _params(selector: Any) -> dict[str, Any]:
    return selector.get_params(deep=False) if hasattr(selector, "get_params") else dict(vars(selector))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):  # JSON has no number for it
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, partial):
        return {"partial": _plain(value.func), "args": _plain(value.args), "keywords": _plain(value.keywords)}
    if isinstance(value, type):
        return _qualified(value)
    if isinstance(value, FunctionType):
        # Many lambdas, and functions inside others, share a name.
        return _contents(value) if "<" in value.__qualname__ else _qualified(value)
    if hasattr(value, "get_params"):
        return _description(value, value.get_params(deep=False))
    return {"class": _qualified(type(value)), "hash": joblib.hash(value)}


def _contents(function: FunctionType) -> dict[str, Any]:
    """What a function does: its code and the values that are bound to it."""
    bound = [cell.cell_contents for cell in function.__closure__ or ()]
    defaults = [function.__defaults__, function.__kwdefaults__]
    return {"function": _qualified(function), "code": _code(function.__code__), "values": _plain([*bound, *defaults])}


def _code(code: CodeType) -> str:
    constants = [_code(entry) if isinstance(entry, CodeType) else repr(entry) for entry in code.co_consts]
    return joblib.hash([code.co_code, code.co_names, constants])


def _qualified(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
