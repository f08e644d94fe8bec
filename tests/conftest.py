"""Settings of all tests.

Property tests look at the same examples every time, so that a change is judged by what it changed and not by luck, and
a busy machine fails nobody. ``HYPOTHESIS_PROFILE=explore`` looks for new ones.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
