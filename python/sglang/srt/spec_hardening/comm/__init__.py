"""What the ranks of a server reduce with: facts of the machine, a plan, and what was done about it.

`decide(facts, settings, environment)` is pure and needs no torch. Gathering facts, applying a plan
and voting do (or NVML), each in a module of its own that is imported where it is called.
"""

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
