"""Declare a parameter of an estimator once: its annotation gives the field, the constraint and the options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

from sklearn.utils._param_validation import Interval, StrOptions

T = TypeVar("T")
Count = Annotated[int, Interval(Integral, 1, None, closed="left")]
NonNegativeInt = Annotated[int, Interval(Integral, 0, None, closed="left")]
Positive = Annotated[float, Interval(Real, 0, None, closed="neither")]
NonNegative = Annotated[float, Interval(Real, 0, None, closed="left")]
Fraction = Annotated[float, Interval(Real, 0, 1, closed="right")]


@dataclass_transform(kw_only_default=True, eq_default=False)
def parameters(cls: type[T]) -> type[T]:
    """Generate `__init__` and `_parameter_constraints` of an estimator from its annotated fields."""
    made = dataclass(eq=False, repr=False, kw_only=True)(cls)
    hints = get_type_hints(made, include_extras=True)
    declared = {name: constraints(hints[name]) for name in made.__dataclass_fields__}  # type: ignore[attr-defined]
    made._parameter_constraints = declared  # type: ignore[attr-defined]
    return made


def constraints(hint: Any) -> list[Any]:
    """The constraints that scikit-learn checks, from an annotation.

    Examples
    --------
    >>> [str(constraint) for constraint in constraints(Positive | Literal["auto"] | None)]
    ['a float in the range (0.0, inf)', "a str among {'auto'}", 'None']
    """
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return [constraint for part in get_args(hint) for constraint in constraints(part)]
    if origin is Annotated:
        return list(hint.__metadata__)
    if origin is Literal:
        return [StrOptions(set(get_args(hint)))]
    if hint is NoneType:
        return [None]
    if hint is bool:
        return ["boolean"]
    return [callable if origin is Callable else origin or hint]
