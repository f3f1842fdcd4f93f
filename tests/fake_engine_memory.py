"""The fake engine, with a data set that no machine can hold."""

import os

from fake_engine import *  # noqa: F403


def task_memory(experiment, task):
    return 2**50 if task.data == os.environ["FAKE_MEMORY"] else 2**20
