"""Every kit in the wheel (`sglang/test/kits`): how it is run, or why it is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NETWORK = "needs a data set from the network"
ANY = "*"


@dataclass(frozen=True)
class Kit:
    """A class of test methods that upstream mixes into its tests.

    Attributes:
        module, name: where it is; an empty name is a module without such a class.
        attributes: what upstream lets the class that uses a kit choose, thresholds above all.
        server: which server of `servers.py` it is run against.
        launches: it starts its servers by itself, with upstream's fixture.
        not_run: reason by device; ANY for every one.
        too_long: tests that are left out on the CPU, with the reason.
    """

    module: str
    name: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    server: str = "main"
    launches: bool = False
    not_run: Mapping[str, str] = field(default_factory=dict)
    too_long: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module

    def left_out(self, device: str) -> Mapping[str, str]:
        return self.too_long if device == "cpu" else {}

    def why_not(self, device: str) -> str:
        return self.not_run.get(ANY) or self.not_run.get(device, "")


def _spec(name: str, **rest: Any) -> Kit:
    return Kit("spec_server_kits", name, **rest)


def _not(module: str, name: str, reason: str) -> Kit:
    return Kit(module, name, not_run={ANY: reason})


# The thresholds of upstream's own EAGLE3 fixture (`Eagle3Base`); the kits' defaults are EAGLE's.
_EAGLE3 = {"acc_length_thres": 1.6, "batch_accept_len_thres": 1.3}

KITS: tuple[Kit, ...] = (
    _spec("SpecCorrectnessKit", attributes=_EAGLE3),
    _spec(
        "SpecLogprobKit",
        too_long={"test_logprob_mixed": "127,000 tokens of prefill, too many for the CPU"},
    ),
    _spec("SpecPenaltyKit"),
    _spec(
        "SpecFeatureKit",
        too_long={"test_radix_attention": "about 290,000 tokens of prefill, too many for the CPU"},
    ),
    _spec("SpecHiddenStatesKit"),
    _spec("SpecGrammarKit"),
    _spec("SpecSamplingMaskKit"),
    _spec(
        "SpecParityKit",
        launches=True,
        not_run={"cpu": "its fixture takes 80 % of the host's memory, without --max-total-tokens"},
    ),
    _spec("SpecAccuracyKit", not_run={ANY: NETWORK}),
    _spec("SpecPerfKit", not_run={ANY: NETWORK}),
    Kit(
        "spec_decoding_kit",
        "SpecDecodingMixin",
        attributes={"accept_length_thres": 1.6, "bs_1_speed_thres": 1.0, "bs_1_speed_attempts": 1},
    ),
    Kit("matched_stop_kit", "MatchedStopMixin"),
    Kit("basic_api_contract_kit", "BasicAPIContractMixin"),
    Kit("basic_decode_correctness_kit", "BasicDecodeCorrectnessMixin"),
    Kit("basic_scheduler_stress_kit", "BasicSchedulerStressMixin"),
    Kit("json_constrained_kit", "JSONConstrainedMixin"),
    Kit("json_mode_kit", "JSONModeMixin"),
    Kit("regex_constrained_kit", "RegexConstrainedMixin"),
    Kit("ebnf_constrained_kit", "EBNFConstrainedMixin"),
    Kit(
        "abort_timeout_kit",
        "AbortAllMixin",
        # The default is more than the model's context.
        attributes={"abort_all_max_new_tokens": 4000},
    ),
    Kit("abort_timeout_kit", "WaitingTimeoutMixin", server="waiting-timeout"),
    Kit("abort_timeout_kit", "RunningTimeoutTwoWaveMixin", server="running-timeout"),
    Kit(
        "pause_generation_kit",
        "PauseResumeInPlaceMixin",
        # The default, 32 requests of 512 tokens, is minutes of work for a CPU; and the kit wants
        # text from each, while the model ends three of five of these answers with its first token.
        attributes={
            "pause_num_requests": 8,
            "pause_max_new_tokens": 256,
            "pause_ignore_eos": True,
        },
    ),
    Kit("streaming_session_kit", "StreamingSessionKitMixin", server="sessions"),
    Kit("streaming_session_kit", "AbortLeakReproKitMixin", server="short-sessions"),
    _not("radix_cache_server_kit", "", "a function that SpecFeatureKit calls"),
    _not("perf_bench_kit", "", "functions for benchmarks, no test"),
    _not("cache_hit_kit", "", "functions for tests that do not ship"),
    _not("attention_unittest", "", "functions for tests that do not ship"),
    _not("kl_divergence_kit", "KLDivergenceMixin", NETWORK),
    _not("eval_accuracy_kit", "", NETWORK),
    _not("lm_eval_kit", "LMEvalMixin", NETWORK),
    _not("mmmu_vlm_kit", "MMMUMixin", "for vision models; " + NETWORK),
    _not("vlm_perf_kit", "", "for vision models; " + NETWORK),
    _not("unified_radix_cache_kit", "UnifiedRadixTreeTestMixin", NETWORK),
    _not("unified_radix_cache_kit", "AccuracyTwoPassMixin", NETWORK),
    _not("unified_radix_cache", "", "fixtures of tests that do not ship"),
    _not("prefix_cache_branching_kit", "PrefixCacheBranchingMixin", "for hybrid (Mamba) models"),
    _not("pd_parity_kit", "PDLogprobParityMixin", "for prefill and decode on different servers"),
    _not("dsa_metadata_kit", "", "for DeepSeek sparse attention"),
    _not(
        "fwd_occupancy_kit", "FwdOccupancyMixin", "its threshold is for models that keep a GPU busy"
    ),
    _not("reasoning_kit", "ReasoningTokenUsageMixin", "for a model that thinks aloud"),
    _not("reasoning_kit", "SeparateReasoningMixin", "for a model that thinks aloud"),
    _not("anthropic_messages_kit", "AnthropicMessagesMixin", "needs the package anthropic"),
)
