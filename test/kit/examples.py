"""How Hypothesis draws examples in this suite, wherever a test does not say otherwise."""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def load_profile(others: bool) -> None:
    """The same examples in every run, or `others`; none of them fails for its time.

    By default an example that takes a quarter of a second is an error, and so are inputs that are
    long in the making. On a host that does other work too, both happen to correct code.
    """
    settings.register_profile(
        "project",
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=not others,
        database=None,
        print_blob=True,
    )
    settings.load_profile("project")
