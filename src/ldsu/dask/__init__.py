"""LDSU on a Dask cluster: the same estimators for distributed samples (extra ``ldsu[dask]``)."""

from ldsu.dask.cluster import ClusterError
from ldsu.dask.cluster_classifier import LDSUClassifier
from ldsu.dask.estimators import LDSU

__all__ = ["LDSU", "ClusterError", "LDSUClassifier"]
