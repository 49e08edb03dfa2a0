"""From facts to a plan: `decide(facts, settings, environment)`. Pure, and without torch."""

from .facts import Facts, FactsError, Gpu, PeerTest
from .measured import Measured, MeasuredError
from .plan import CommunicationError, Plan, decide
from .settings import Settings

__all__ = [
    "CommunicationError",
    "Facts",
    "FactsError",
    "Gpu",
    "Measured",
    "MeasuredError",
    "PeerTest",
    "Plan",
    "Settings",
    "decide",
]
