"""Run the self-test so that it leaves no trace: nothing counted, nothing sent, nothing cached."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch

_PLAIN = (int, float, bool, str, type(None))


class _Silent:
    """Stands in for a Prometheus metric: takes every call, keeps nothing."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self


@contextmanager
def no_trace(scheduler: Any) -> Iterator[None]:
    """Inside, the scheduler answers nobody and counts nothing; afterwards all is as before.

    The caller flushes the cache (`flush`) while still inside.
    """
    reporter = scheduler.metrics_reporter
    collectors = [c for c in (scheduler.metrics_collector, reporter.metrics_collector) if c]
    channels = scheduler.ipc_channels
    senders = (channels.send_to_detokenizer, channels.send_to_tokenizer)
    kept = {
        "plain": {k: v for k, v in vars(scheduler).items() if isinstance(v, _PLAIN)},
        "reporter": {k: _copy(v) for k, v in vars(reporter).items()},
        "metrics": [{k: v for k, v in vars(c).items() if hasattr(v, "labels")} for c in collectors],
        "sockets": [sender.socket for sender in senders],
        "policy": _policy(scheduler),
    }
    generators = (random.getstate(), numpy.random.get_state(), _torch_state(scheduler.device))
    reporter.enable_metrics = reporter.current_scheduler_metrics_enabled = False
    reporter.is_stats_logging_rank = reporter.enable_kv_cache_events = False
    for collector, metrics in zip(collectors, kept["metrics"], strict=True):
        vars(collector).update(dict.fromkeys(metrics, _Silent()))
    for sender in senders:
        sender.socket = None
    sleeper, scheduler.idle_sleeper = scheduler.idle_sleeper, None  # waits for a client's message
    try:
        yield
    finally:
        vars(scheduler).update(kept["plain"])
        scheduler.idle_sleeper = sleeper
        vars(reporter).update(kept["reporter"])
        for collector, metrics in zip(collectors, kept["metrics"], strict=True):
            vars(collector).update(metrics)
        for sender, socket in zip(senders, kept["sockets"], strict=True):
            sender.socket = socket
        _restore_policy(scheduler, kept["policy"])
        random.setstate(generators[0])
        numpy.random.set_state(generators[1])
        _set_torch_state(scheduler.device, generators[2])


def flush(scheduler: Any) -> None:
    """Forget every cached prefix and give all KV back."""
    scheduler.flush_cache(empty_cache=False)


def room(scheduler: Any) -> tuple[int, int]:
    """Free KV tokens and free request rows: equal before and after, or something was kept."""
    return (
        int(scheduler.token_to_kv_pool_allocator.available_size()),
        int(scheduler.req_to_token_pool.available_size()),
    )


def _copy(value: Any) -> Any:
    """A copy of a figure or a collection of figures; other objects as they are."""
    if isinstance(value, _PLAIN):
        return value
    if type(value).__module__.startswith(("builtins", "collections")):
        return copy.copy(value)
    if type(value).__name__ in ("SchedulerStats", "_CacheHitRateWindow"):
        return copy.deepcopy(value)
    return value


def _policy(scheduler: Any) -> Any:
    controller = getattr(scheduler.draft_worker, "adaptive_controller", None)
    if controller is None:
        return None
    return copy.deepcopy(vars(controller.params)), scheduler.draft_worker.speculative_num_steps


def _restore_policy(scheduler: Any, kept: Any) -> None:
    if kept is None:
        return
    controller = scheduler.draft_worker.adaptive_controller
    vars(controller.params).update(kept[0])
    if scheduler.draft_worker.speculative_num_steps != kept[1]:
        controller._activate(kept[1])


def _torch_state(device: str) -> list[torch.Tensor]:
    states = [torch.get_rng_state()]
    if device != "cpu":
        states.append(torch.get_device_module(device).get_rng_state())
    return states


def _set_torch_state(device: str, states: list[torch.Tensor]) -> None:
    torch.set_rng_state(states[0])
    if device != "cpu":
        torch.get_device_module(device).set_rng_state(states[1])
