"""LDSU past one machine: the same estimators for samples that lie on a Dask cluster (extra ``ldsu[dask]``)."""

from ldsu.dask.cluster import ClusterError
from ldsu.dask.cluster_classifier import LDSUClassifier
from ldsu.dask.estimators import LDSU

__all__ = ["LDSU", "ClusterError", "LDSUClassifier"]
