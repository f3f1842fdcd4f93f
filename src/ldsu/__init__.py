"""Features from many samples and few labels.

samples -> labels, kernels -> neighbors -> graphs -> spectrum, solvers -> methods -> classifier -> active,
model_selection -> io; tables, datasets -> studio, dask, bench -> cli
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ldsu.classifier import BlockScaler, LabelledOnly, LDSUClassifier
    from ldsu.io import describe_model, load_model, save_model
    from ldsu.labels import encode_labels, unlabelled_mask
    from ldsu.methods import KDA, KLPP, KPCA, KSDA, KSELF, LDSU, METHODS, EnFS
    from ldsu.model_selection import (
        FewLabelKFold,
        LabelledScorer,
        LDSUSearch,
        mean_average_precision,
        mean_average_precision_scorer,
    )
    from ldsu.solvers import Problem
    from ldsu.studio import label

__version__ = "0.1.0"

__all__ = [
    "KDA",
    "KLPP",
    "KPCA",
    "KSDA",
    "KSELF",
    "LDSU",
    "METHODS",
    "BlockScaler",
    "EnFS",
    "FewLabelKFold",
    "LDSUClassifier",
    "LDSUSearch",
    "LabelledOnly",
    "LabelledScorer",
    "Problem",
    "describe_model",
    "encode_labels",
    "label",
    "load_model",
    "mean_average_precision",
    "mean_average_precision_scorer",
    "save_model",
    "unlabelled_mask",
]


def __getattr__(name: str) -> Any:
    """Import public names on first access: `ldsu --help` does not wait for scikit-learn."""
    if name in __all__:
        # The slowest last.
        for submodule in ("labels", "methods", "classifier", "solvers", "io", "model_selection", "studio"):
            module = import_module(f"ldsu.{submodule}")
            if hasattr(module, name):
                return globals().setdefault(name, getattr(module, name))
    if not name.startswith("_") and find_spec(f"ldsu.{name}"):
        return import_module(f"ldsu.{name}")
    raise AttributeError(f"module 'ldsu' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
