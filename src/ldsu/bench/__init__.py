"""Experiments: what a TOML file asks for, computed cell by cell into a store, and reported beside the paper.

spec -> protocol -> engine -> runner, store -> selection -> report
"""
