"""Utilities shared by all packages: arrays, memory, progress, files, atomic fits."""
