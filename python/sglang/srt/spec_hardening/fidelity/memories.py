"""What custom logit processors remember, put back where a retraction threw a step's tokens away.

With overlap a request can be retracted while the result of its last step is still to come. Its
tokens are thrown away then and made anew, but the processor has judged them and keeps what it
remembers in the request's own parameters. So that state is noted before each step, with the number
of tokens that it belongs to, and taken back at the prefill if no more than those are there.

Called by: `fidelity/processors.py` before a verify, `fidelity/prefill.py` before a prefill samples.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req

REQUEST = "__req__"  # upstream's reference to the request, which is no state
Parameters = dict[str, Any]
_NOTED: WeakKeyDictionary[Req, tuple[int, Parameters]] = WeakKeyDictionary()


def note(req: Req, own: Parameters) -> None:
    """Keep what the processor of a request remembers before a step."""
    _NOTED[req] = len(req.output_ids), state_of(own)


def take_back(req: Req) -> None:
    """Undo what the processor has seen of a step whose tokens the request does not have; note the
    state for the step that comes now."""
    own = req.sampling_params.custom_params
    if req.custom_logit_processor is None or not own:
        return
    tokens, state = _NOTED.get(req, (-1, {}))
    if tokens == len(req.output_ids):
        for key in own.keys() - {REQUEST}:
            del own[key]
        own.update(copy.deepcopy(state))
    note(req, own)


def state_of(own: Parameters) -> Parameters:
    """A copy of its own, which no later step changes."""
    return copy.deepcopy({key: value for key, value in own.items() if key != REQUEST})
