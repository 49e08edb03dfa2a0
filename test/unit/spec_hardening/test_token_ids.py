"""Which token ids of a client are refused, and by what words."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from sglang.srt.managers.io_struct import EmbeddingReqInput, GenerateReqInput
from sglang.srt.spec_hardening import token_ids

SIZE = 320


@pytest.mark.parametrize("kind", [GenerateReqInput, EmbeddingReqInput])
@pytest.mark.parametrize(("token", "place"), [(SIZE, 2), (10**9, 0), (-1, 1)])
def test_an_id_outside_is_refused_by_field_id_place_and_size(
    kind: type, token: int, place: int
) -> None:
    ids = [5, 6, 7]
    ids[place] = token
    says = rf"^input_ids: token id {token} at position {place} .* {SIZE} tokens.* 0 to {SIZE - 1}$"
    with pytest.raises(ValueError, match=says):
        token_ids.check(kind(input_ids=ids), SIZE)


@pytest.mark.parametrize("ids", [[0, SIZE - 1], [], None])
def test_ids_inside_pass(ids: list[int] | None) -> None:
    token_ids.check(GenerateReqInput(input_ids=ids), SIZE)


def test_text_is_the_tokenizers_matter() -> None:
    token_ids.check(GenerateReqInput(text="a"), SIZE)


@pytest.mark.parametrize("more", [{"image_data": "picture"}, {"lora_path": "adapter"}])
def test_ids_that_lie_outside_on_purpose_pass(more: dict[str, str]) -> None:
    token_ids.check(GenerateReqInput(input_ids=[SIZE + 1], **more), SIZE)
    with pytest.raises(ValueError, match="input_ids"):
        token_ids.check(GenerateReqInput(input_ids=[SIZE + 1], **dict.fromkeys(more)), SIZE)


@pytest.mark.parametrize(
    ("token", "least", "fine"), [(SIZE, 4, False), (-1, 4, False), (SIZE, 0, True)]
)
def test_stop_tokens_count_where_they_are_looked_up(token: int, least: int, fine: bool) -> None:
    sampling = {"min_new_tokens": least, "stop_token_ids": [3, token]}
    request = GenerateReqInput(input_ids=[5], sampling_params=sampling)
    if fine:
        token_ids.check(request, SIZE)
        return
    with pytest.raises(ValueError, match=rf"^sampling_params.stop_token_ids: token id {token} at"):
        token_ids.check(request, SIZE)


def test_the_tokenizer_process_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call site, without a server: the check comes before everything else it looks at."""
    from sglang.srt.managers import tokenizer_manager

    features = SimpleNamespace(features=SimpleNamespace(enable_encoder_swa_bounded_replay=False))
    monkeypatch.setattr(tokenizer_manager, "get_exec", lambda: features)

    def go_on(*_: object) -> None:
        pytest.fail("the id was let through")

    manager = SimpleNamespace(
        model_config=SimpleNamespace(vocab_size=SIZE), _validate_joint_schema_request=go_on
    )
    with pytest.raises(ValueError, match=f"token id {SIZE} "):
        tokenizer_manager.TokenizerManager._validate_one_request(
            manager, GenerateReqInput(input_ids=[SIZE]), [SIZE]
        )
