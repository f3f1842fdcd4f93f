"""Atomic updates of fitted state."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

Fit = TypeVar("Fit", bound=Callable[..., Any])


def atomic(fit: Fit) -> Fit:
    """Decorate `fit` so that an estimator is unchanged if `fit` fails or is interrupted.

    A second object with the same parameters, without fitted attributes, is fitted. On success its attributes replace
    those of the estimator in a single assignment, which signals cannot interrupt.
    """

    @wraps(fit)
    def fit_and_replace(self: Any, *args: Any, **kwargs: Any) -> Any:
        working = object.__new__(type(self))
        learned = {name for name in vars(self) if name.endswith("_") and not name.startswith("_")}
        working.__dict__.update({name: value for name, value in vars(self).items() if name not in learned})
        fit(working, *args, **kwargs)
        self.__dict__ = working.__dict__
        return self

    return fit_and_replace  # type: ignore[return-value]
