"""How many inputs are generated, how long one may take, and a count of those that were.

`LDSU_FUZZ` chooses: unset, a few hundred inputs, the same ones on every run; "full", more than ten thousand new ones.
"""

import faulthandler
import functools
import os
from collections import Counter

from hypothesis import HealthCheck, Phase, settings

FULL = os.environ.get("LDSU_FUZZ") == "full"
# An input that takes longer fails; one that never ends takes the process with it, and shows where it was.
DEADLINE_SECONDS, HANG_SECONDS = 20, 120
# Inputs so far, by test.
COUNTS: Counter[str] = Counter()

COMMON = {
    "deadline": DEADLINE_SECONDS * 1000,
    "database": None,
    "suppress_health_check": list(HealthCheck),  # arrays and files are large, and fixtures of a module are not changed
    "print_blob": True,
    "phases": [Phase.generate, Phase.shrink],
}
settings.register_profile("default", derandomize=True, **COMMON)
settings.register_profile("full", derandomize=False, **COMMON)
settings.load_profile("full" if FULL else "default")


def inputs(default, full):
    """Decorate a test below `given`: this many inputs in the default and in the full profile, counted and timed."""

    def decorate(test):
        @functools.wraps(test)
        def counted(*arguments, **named):
            COUNTS[test.__name__] += 1
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            try:
                return test(*arguments, **named)
            finally:
                faulthandler.cancel_dump_traceback_later()

        return settings(max_examples=full if FULL else default)(counted)

    return decorate
