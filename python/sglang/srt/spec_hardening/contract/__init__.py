"""The contract between an EAGLE3 draft and its target, checked before any weight is loaded.

`check_pair` reads two folders (config.json and the headers of the weight files) and says, in one
form for every model family, which layer's output each slot of the draft's `fc` will be given, or
why the pair must not be served. Nothing here imports torch or the rest of SGLang, so that the
command-line tool gives the same answer on a machine that has neither.
"""

from .check import check_pair
from .report import ContractError, Problem, Report, Slot
from .settings import Settings

__all__ = ["ContractError", "Problem", "Report", "Settings", "Slot", "check_pair"]
