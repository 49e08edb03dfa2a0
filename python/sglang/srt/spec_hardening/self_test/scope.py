"""Whether the self-test says anything about this server, and if not, why not."""

from __future__ import annotations

from typing import Any

from sglang.srt.environ import envs
from sglang.srt.runtime_context import (
    get_disagg,
    get_exec,
    get_model,
    get_observability,
    get_parallel,
    get_spec,
)


def reason_against(scheduler: Any) -> str | None:
    """Why the state is "unproven" and nothing is run; None to run it.

    Everything here is equal on all ranks.
    """
    spec = get_spec()
    checks = (
        (spec.skip_speculative_self_test, "--skip-speculative-self-test is set"),
        (
            envs.SGLANG_SIMULATE_ACC_LEN.get() > 0,
            "SGLANG_SIMULATE_ACC_LEN forces acceptance, so the output is not the model's",
        ),
        (
            "dummy" in (get_model().load_format, spec.speculative_draft_load_format),
            "weights are dummies (--load-format dummy)",
        ),
        (
            get_model().checkpoint_engine_wait_weights_before_ready,
            "the weights arrive later, from the checkpoint engine",
        ),
    )
    given = next((reason for applies, reason in checks if applies), None)
    return given or reason_against_driving(scheduler)


def reason_against_driving(scheduler: Any) -> str | None:
    """Why no requests can be run through this scheduler before it is ready; None if they can.

    Everything here is equal on all ranks.
    """
    checks = (
        (not scheduler.is_generation, "the model does not generate"),
        (
            not (scheduler.spec_algorithm.is_eagle() or scheduler.spec_algorithm.is_eagle3()),
            f"it covers EAGLE and EAGLE3, not {scheduler.spec_algorithm.name}",
        ),
        (
            get_disagg().disaggregation_mode != "null",
            f"one role of a disaggregated pair ({get_disagg().disaggregation_mode}) cannot "
            "decode alone",
        ),
        (get_parallel().pp_size > 1, "pipeline parallelism is not covered"),
        (get_parallel().attn_dp_enabled, "attention data parallelism is not covered"),
        (scheduler.enable_pdmux, "PD multiplexing is not covered"),
        (scheduler.rust_server is not None, "the Rust front end is not covered"),
        (get_exec().moe.is_ep_scale_joiner, "an elastic joiner is served by its primary"),
        (
            get_exec().moe.ep_join_mode == "recover",
            "a rank that rejoins must not wait for ranks that serve",
        ),
        (
            bool(get_observability().debug_tensor_dump_output_folder),
            "tensors are dumped for debugging",
        ),
        (scheduler.enable_hisparse, "HiSparse is not covered"),
        (envs.SGLANG_TEST_SCRIPTED_RUNTIME.get(), "the scheduler is driven by a script"),
    )
    return next((reason for applies, reason in checks if applies), None)
