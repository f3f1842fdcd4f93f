"""Inputs nobody thought of: generated, changed at random, and fed to every estimator, reader and model file."""
