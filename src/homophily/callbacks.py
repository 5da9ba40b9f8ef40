"""scikit-learn's own callbacks (``set_callbacks``, from version 1.9 on), told of the steps of a fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .training import Callback, Progress

try:
    from sklearn.callback import CallbackSupportMixin
except ImportError:  # older versions have none

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing to support."""


__all__ = ["CallbackSupportMixin", "told_as_tasks"]


@contextmanager
def told_as_tasks(estimator: Any, X: Any, n_steps: int, callback: Callback | None) -> Iterator[Callback | None]:
    """Yield a callback that tells those of scikit-learn, if there are any, beside the given one.

    Each of at most ``n_steps`` steps of the training is a task within the fit. One of the callbacks may stop it.
    """
    # Within a pipeline the fit is a task even if nobody listens.
    if not hasattr(estimator, "_skl_callbacks") and not hasattr(estimator, "_parent_callback_ctx"):
        yield callback
        return
    fit = estimator._init_callback_context(max_subtasks=n_steps)
    fit.call_on_fit_task_begin(estimator=estimator, X=X)

    def tell(progress: Progress) -> bool:
        stop = callback is not None and bool(callback(progress))
        if progress.stage == "training":
            step = fit.subcontext(task_name="step")
            step.call_on_fit_task_begin(estimator=estimator, X=X)
            stop = step.call_on_fit_task_end(estimator=estimator, X=X) or stop
        return stop

    yield tell
    fit.call_on_fit_task_end(estimator=estimator, X=X)
