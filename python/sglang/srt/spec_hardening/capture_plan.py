"""What a target captures for its draft, and whether a forward handed that over.

The plan is made once, when the model has been told what to capture, and hangs on the model and its
logits processor. Every forward that runs Python is held against it.

Called by: `aux_capture` (makes it) and, patch `aux-capture-checks-itself`,
`layers/logits_processor.py`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from sglang.srt.spec_hardening.contract import Slot
from sglang.srt.spec_hardening.fingerprint import (
    VALUES,
    Fingerprint,
    FingerprintError,
    traces_of,
)

logger = logging.getLogger(__name__)


class CaptureError(RuntimeError):
    """The target does not capture what the draft was trained on; the text names the layers."""


@dataclass(frozen=True)
class CapturePlan:
    """What the target captures for its draft.

    Attributes:
        ids: as the draft declares them, None for the default layers.
        convention: how the target's family reads ids, in words.
        hidden_size: width of one state; None where the target's config does not say.
    """

    slots: tuple[Slot, ...]
    ids: tuple[int, ...] | None
    convention: str
    hidden_size: int | None
    fingerprint: Fingerprint | None = None

    def __str__(self) -> str:
        taken = ", ".join(f"{slot.takes} (loop index {slot.loop_index})" for slot in self.slots)
        return f"{len(self.slots)} states of width {self.hidden_size}: {taken}"

    def to_json(self) -> dict[str, Any]:
        width = None if self.hidden_size is None else self.hidden_size * len(self.slots)
        return {
            "slots": [slot.to_json() for slot in self.slots],
            "layer_ids": None if self.ids is None else list(self.ids),
            "convention": self.convention,
            "fc_width": width,
            "fingerprint": self._fingerprint_state(),
        }

    def _fingerprint_state(self) -> str:
        if self.fingerprint is None:
            return "none"
        done, all_ = len(self.fingerprint.proven), len(self.fingerprint.prompts)
        return f"{done} of {all_} prompts compared"

    def check_forward(
        self, captured: Any, hidden_states: Any, input_ids: Any, metadata: Any
    ) -> None:
        """Check a forward of the target, where its logits are about to be computed.

        Args:
            captured, hidden_states: as in `check`.
            input_ids: the tokens of the batch, [tokens]; a graph's may have more rows than tokens.
            metadata: upstream's LogitsMetadata, for the mode and the lengths of the requests.

        Raises:
            CaptureError: as `check` and `compare`.
        """
        mode = metadata.forward_mode
        if mode.is_idle():
            return
        self.check(captured, hidden_states)
        lengths = metadata.extend_seq_lens_cpu
        if mode.is_extend_without_speculative() and lengths is not None and len(lengths) == 1:
            self.compare(captured, input_ids, int(lengths[0]))

    def check(self, captured: Any, hidden_states: Any) -> None:
        """Compare what a forward handed over with the plan: the number and the width of states.

        Args:
            captured: None, one packed tensor [tokens, slots * hidden], or a list of
                [tokens, hidden] tensors.
            hidden_states: the final states, [tokens, hidden]; nothing is said about no tokens.

        Raises:
            CaptureError: another number of states, or another width.
        """
        if hidden_states.shape[0] == 0:
            return
        hidden = self.hidden_size or int(hidden_states.shape[-1])
        if captured is None:
            widths: list[int] = []
        elif isinstance(captured, (list, tuple)):
            widths = [int(state.shape[-1]) for state in captured]
        else:
            packed = int(captured.shape[-1])
            widths = [hidden] * (packed // hidden) + [packed % hidden] * (packed % hidden > 0)
        if widths != [hidden] * len(self.slots):
            raise CaptureError(
                f"the target captured {len(widths)} states of widths {widths}, the draft takes "
                f"{self}; a layer that this forward does not run, or runs in another order, is the "
                "likely cause"
            )

    def compare(self, captured: Any, input_ids: Any, tokens: int) -> None:
        """Hold the states of a request against the fingerprint, if it is one of its prompts.

        Args:
            captured: of `check`, with `tokens` rows or more.
            input_ids: the tokens computed for the request, `tokens` of them or more.

        Raises:
            CaptureError: other layers than the draft was trained on.
        """
        marks = self.fingerprint
        if marks is None or input_ids is None or not marks.unproven or _recording(input_ids):
            return
        if not any(VALUES <= tokens <= len(prompt.input_ids) for prompt in marks.prompts):
            return
        number = marks.find(input_ids[:tokens].tolist())
        if number is None:
            return
        try:
            marks.compare(number, traces_of(captured, len(self.slots), tokens))
        except FingerprintError as error:
            raise CaptureError(str(error)) from error
        logger.info("EAGLE3 capture: prompt %d of %s agrees in every slot", number, marks.path)


def _recording(tensor: Any) -> bool:
    """Whether a graph is being recorded, when a tensor's values cannot be looked at."""
    if tensor.device.type != "cuda":
        return False
    import torch

    return bool(torch.cuda.is_current_stream_capturing())
