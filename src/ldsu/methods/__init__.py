"""Feature extraction methods, with the names used in the paper."""

from typing import TYPE_CHECKING, Any

from ldsu.methods._leave_one_out import choose, leave_one_out, log_likelihoods
from ldsu.methods._sample_kinds import SampleKinds, embedding_likeness, local_structure, sample_kinds, sample_rows
from ldsu.methods.kda import KDA
from ldsu.methods.klpp import KLPP
from ldsu.methods.kpca import KPCA
from ldsu.methods.ksda import KSDA
from ldsu.methods.kself import KSELF
from ldsu.methods.ldsu import LDSU

if TYPE_CHECKING:
    from ldsu.methods.enfs import EnFS

    METHODS: dict[str, type]

__all__ = [
    "KDA",
    "KLPP",
    "KPCA",
    "KSDA",
    "KSELF",
    "LDSU",
    "METHODS",
    "EnFS",
    "SampleKinds",
    "choose",
    "embedding_likeness",
    "leave_one_out",
    "local_structure",
    "log_likelihoods",
    "sample_kinds",
    "sample_rows",
]


def __getattr__(name: str) -> Any:
    """Import `EnFS` on first access: its base class imports half of scikit-learn."""
    if name not in ("EnFS", "METHODS"):
        raise AttributeError(f"module 'ldsu.methods' has no attribute {name!r}")
    from ldsu.methods.enfs import EnFS

    methods = {method.__name__: method for method in (KDA, KPCA, KSDA, KSELF, KLPP, EnFS, LDSU)}
    globals().update(EnFS=EnFS, METHODS=methods)
    return globals()[name]
