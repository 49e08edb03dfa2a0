"""Run requests through the scheduler's own event loop, before anybody else can send one.

The loop is the one that will serve (normal or overlapped): only its source of requests is
replaced, and it is told to leave when the work is done. So what runs is what will run, and
nothing of the loop is written twice.
"""

from __future__ import annotations

from typing import Any

import torch

from .result import SelfTestError


class Driver:
    """Feeds one scheduler. `run` may be called many times."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._waiting: list[Any] = []
        self._seen: dict[str, Any] = {}
        self._expected = 0
        self._odd: dict[str, torch.Tensor] = {}

    def run(self, requests: list[Any]) -> list[Any]:
        """Serve `requests` as one arrival; the scheduler's Req objects, finished, in their order.

        SelfTestError if one was refused or a NaN turned up on the way.
        """
        scheduler = self._scheduler
        self._waiting, self._seen, self._expected = list(requests), {}, len(requests)
        self._odd = {}
        scheduler.ingest_requests = self._ingest
        enqueue, scheduler._add_request_to_queue = scheduler._add_request_to_queue, self._enqueue
        forward = scheduler.model_worker.forward_batch_generation
        scheduler.model_worker.forward_batch_generation = self._watch(forward)
        self._real_enqueue = enqueue
        try:
            scheduler.run_event_loop()
        finally:
            scheduler.gracefully_exit = False
            del scheduler.ingest_requests
            del scheduler._add_request_to_queue
            del scheduler.model_worker.forward_batch_generation
        self._raise_if_odd()
        reqs = [self._seen[request.rid] for request in requests]
        for req in reqs:
            reason = req.finished_reason.to_json()
            if reason.get("type") == "abort":
                raise SelfTestError(f"request {req.rid} was refused: {reason.get('message')}")
        return reqs

    def _ingest(self, stop_at_pause: bool = False) -> list[Any]:
        """In place of `Scheduler.ingest_requests`, called once an iteration on every rank."""
        scheduler = self._scheduler
        arrived, self._waiting = self._waiting, []
        if arrived:
            scheduler.process_input_requests(arrived)
        elif self._agreed(self._is_done()):
            scheduler.gracefully_exit = True
        return arrived

    def _is_done(self) -> bool:
        return (
            len(self._seen) == self._expected
            and all(req.finished() for req in self._seen.values())
            and self._scheduler.last_batch is None
            and self._scheduler.is_fully_idle()
        )

    def _agreed(self, done: bool) -> bool:
        """All ranks leave the loop in the same iteration, or none does."""
        if self._scheduler.tp_group.world_size == 1:
            return done
        flag = torch.tensor([int(done)])
        torch.distributed.all_reduce(
            flag, op=torch.distributed.ReduceOp.MIN, group=self._scheduler.tp_cpu_group
        )
        return bool(flag.item())

    def _enqueue(self, req: Any, is_retracted: bool = False) -> None:
        self._seen[req.rid] = req
        self._real_enqueue(req, is_retracted)

    def _watch(self, forward: Any) -> Any:
        def watched(batch: Any, *args: Any, **kwargs: Any) -> Any:
            drafted_from = getattr(batch.spec_info, "hidden_states", None)
            result = forward(batch, *args, **kwargs)
            self._look("what the draft started from", drafted_from)
            logits = result.logits_output
            self._look("target logits", getattr(logits, "next_token_logits", None))
            draft = result.next_draft_input
            self._look("draft hidden states", getattr(draft, "hidden_states", None))
            self._look("draft probabilities", getattr(draft, "topk_p", None))
            return result

        return watched

    def _look(self, what: str, tensor: Any) -> None:
        """Note a NaN without waiting for the device; `_raise_if_odd` waits once."""
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.numel():
            odd = torch.isnan(tensor).any()
            self._odd[what] = self._odd[what] | odd if what in self._odd else odd

    def _raise_if_odd(self) -> None:
        if self._odd and self._scheduler.device != "cpu":
            # Written on the forward stream, after the results that the loop waited for.
            torch.get_device_module(self._scheduler.device).synchronize()
        found = [what for what, odd in self._odd.items() if bool(odd)]
        if found:
            raise SelfTestError(
                f"NaN in {', '.join(found)}; check the weights of target and draft "
                "(quantisation, dtype) and the attention backend"
            )
