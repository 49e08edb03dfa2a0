"""Where a verify may be a decode: no torch, no launch."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
from sglang.srt.spec_hardening.verify_attention.choice import (
    AUTO,
    DECODE,
    EXTEND,
    MODES,
    Facts,
    VerifyAttentionError,
    as_decode,
    obstacles,
)

ODD: dict[str, tuple[object, str]] = {
    "algorithm": ("NGRAM", "--speculative-algorithm NGRAM"),
    "backend": ("flashinfer", "the attention backend flashinfer"),
    "topk": (4, "--speculative-eagle-topk 4"),
    "adaptive": (True, "--speculative-adaptive"),
    "deterministic": (True, "--enable-deterministic-inference"),
    "two_batch_overlap": (True, "--enable-two-batch-overlap"),
    "dcp_size": (2, "--dcp-size 2"),
    "sliding_window": (True, "sliding-window"),
    "latent": (True, "MLA"),
    "recurrent": (True, "recurrent"),
    "encoder_decoder": (True, "encoder"),
    "diffusion": (True, "diffusion"),
    "translated": (True, "--enable-unified-memory"),
}


def test_every_fact_is_tried() -> None:
    assert set(ODD) == {field.name for field in dataclasses.fields(Facts)}


def test_a_chain_on_triton() -> None:
    assert obstacles(Facts()) == obstacles(Facts(algorithm="EAGLE")) == ()
    assert [as_decode(mode, Facts()) for mode in MODES] == [mode != EXTEND for mode in MODES]


@pytest.mark.parametrize("name", ODD)
def test_what_keeps_the_extend_kernel(name: str) -> None:
    value, said = ODD[name]
    facts = dataclasses.replace(Facts(), **{name: value})  # type: ignore[arg-type]
    (found,) = obstacles(facts)
    assert said in found
    assert not as_decode(EXTEND, facts)
    assert not as_decode(AUTO, facts)
    with pytest.raises(VerifyAttentionError, match="--speculative-verify-attention decode") as info:
        as_decode(DECODE, facts)
    assert found in str(info.value)
    assert "write auto" in str(info.value)


def test_all_reasons_are_named() -> None:
    with pytest.raises(VerifyAttentionError, match=r"flashinfer.*topk 8.*MLA"):
        as_decode(DECODE, Facts(backend="flashinfer", topk=8, latent=True))


def test_a_word_that_is_none() -> None:
    with pytest.raises(VerifyAttentionError, match="split: write auto, extend, decode"):
        as_decode("split", Facts())


def test_it_is_decided_without_torch() -> None:
    code = (
        "import importlib.util as u, sys; spec = u.spec_from_file_location('choice', sys.argv[1]);"
        "module = u.module_from_spec(spec); sys.modules['choice'] = module;"
        "spec.loader.exec_module(module); assert module.as_decode('decode', module.Facts());"
        "assert 'torch' not in sys.modules and 'sglang' not in sys.modules"
    )
    path = sys.modules[Facts.__module__].__file__
    assert path is not None
    subprocess.run([sys.executable, "-S", "-c", code, path], check=True, timeout=60)
