"""Experiments: defined in a TOML file, computed cell by cell into a store, and reported next to the paper.

spec -> protocol -> engine -> runner, store -> selection -> report
"""
