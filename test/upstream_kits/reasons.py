"""Why a test fails here: found out by hand, shown beside its failure on the page."""

from __future__ import annotations

CUT_AT_128 = "the model does not come to the end of its answer in the tokens that the kit gives it"

ENDS_BEFORE = (
    "the kit aborts after half a second, and by then this model has ended its answer, as the "
    "kit lets it"
)

REASONS = {
    "spec_server_kits.SpecSamplingMaskKit.test_sampling_mask": (
        "upstream refuses return_sampling_mask with speculation, also in its plain release"
    ),
    "matched_stop_kit.MatchedStopMixin.test_finish_stop_str": (
        "a near tie at the fifth token of the chat's greedy answer: in float32 the logit of "
        "' fantasy' is 0.006 above that of ' a', and a step of bfloat16 is 0.06 there. One branch "
        "has a line break after 73 tokens, the other none in 1000"
    ),
    "basic_decode_correctness_kit.BasicDecodeCorrectnessMixin.test_basic_math": (
        "the model says 17, also without speculation"
    ),
    "basic_scheduler_stress_kit.BasicSchedulerStressMixin.test_concurrent_requests": (
        'after "Answer with a single word" the model ends at once, or repeats the country; in '
        "float32 without a server too"
    ),
    "json_constrained_kit.JSONConstrainedMixin.test_json_generate": CUT_AT_128,
    "json_constrained_kit.JSONConstrainedMixin.test_mix_json_and_other": CUT_AT_128,
    "regex_constrained_kit.RegexConstrainedMixin.test_regex_generate_custom_log_format": CUT_AT_128,
    "ebnf_constrained_kit.EBNFConstrainedMixin.test_ebnf_generate_complex_json": (
        "the kit asks for temperature 0.5, and its grammar allows an object with one member where "
        "it wants three. Plain takes the argmax in verify on a CPU whatever the temperature "
        "(`cpu-verify-sampling` mends that), so it gives one and the same answer; patched draws"
    ),
    "ebnf_constrained_kit.EBNFConstrainedMixin.test_ebnf_generate_custom_log_format": CUT_AT_128,
    "streaming_session_kit.StreamingSessionKitMixin.test_first_mid_abort_recovery": ENDS_BEFORE,
    "streaming_session_kit.StreamingSessionKitMixin.test_nth_mid_abort_recovery": ENDS_BEFORE,
}
