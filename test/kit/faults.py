"""Faulty pairs, one row each: how the pair is made wrong, and how the contract must say it.

The tiny pair is the base: 7 layers, hidden size 256, 320 tokens, layers 1, 3 and 5 captured. Rows
with `reduced` take its variant whose draft knows part of the vocabulary.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sglang_spec.models.pair import Pair

from kit.checkpoints import Config, Tensor, Tensors, copy, integers, values_of

IDS = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True)
class Fault:
    """A faulty pair.

    Attributes:
        code: of the first problem.
        says: what its text must hold.
        config, tensors: edit the draft; `target` the target's config; `files` the draft's folder.
        settings: of `check_pair`; `arguments` and `environment` say the same to a launch.
        drop: launch without a draft path.
    """

    name: str
    code: str
    says: str
    config: Callable[[Config], None] | None = None
    tensors: Callable[[Tensors], None] | None = None
    files: Callable[[Path], None] | None = None
    target: Callable[[Config], None] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    algorithm: str = "EAGLE3"
    reduced: bool = False
    drop: bool = False
    launchable: bool = True

    def make(self, base: Pair, folder: Path) -> Pair:
        """Write the pair into `folder`; what the fault leaves alone is taken from `base`."""
        target = base.target
        if self.target is not None:
            target = copy(base.target, folder / "target", self.target)
        draft = copy(base.draft, folder / "draft", self.config, self.tensors)
        if self.files is not None:
            self.files(draft)
        return Pair(target, draft)


def _ids(value: Any) -> Callable[[Config], None]:
    return lambda config: config["eagle_config"].update({IDS: value})


def _set(**keys: Any) -> Callable[[Config], None]:
    return lambda config: config.update(keys)


def _without(*names: str) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        for name in names:
            del tensors[_full(tensors, name)]

    return edit


def _full(tensors: Tensors, name: str) -> str:
    return next(held for held in tensors if held == name or held.endswith("." + name))


def _change(name: str, edit: Callable[[Tensor], Tensor]) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        full = _full(tensors, name)
        tensors[full] = edit(tensors[full])

    return change


def _rename(name: str, new: str) -> Callable[[Tensors], None]:
    def edit(tensors: Tensors) -> None:
        full = _full(tensors, name)
        tensors[full.removesuffix(name) + new] = tensors.pop(full)

    return edit


def _d2t(edit: Callable[[list[int]], list[int]]) -> Callable[[Tensors], None]:
    return _change("d2t", lambda tensor: integers(edit(values_of(tensor))))


def _move(key: str, new: str) -> Callable[[Config], None]:
    return lambda config: config["eagle_config"].update({new: config["eagle_config"].pop(key)})


def _top(config: Config) -> None:
    config[IDS] = [0, 2, 4]


def _rename_section(config: Config) -> None:
    config["eagel_config"] = config.pop("eagle_config")


def _no_list(config: Config) -> None:
    del config["eagle_config"]


def _drop(key: str) -> Callable[[Config], None]:
    return lambda config: config.pop(key)


def _config_text(text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "config.json").write_text(text) and None


def _weights_text(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")


def _cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data[: len(data) // 2])


def _no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def _lost_shard(folder: Path) -> None:
    names = {
        "fc.weight": "model-00001-of-00002.safetensors",
        "norm.weight": "model-00002-of-00002.safetensors",
    }
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    index = {"metadata": {}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


class _Call:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (print, ("run while loading",))


def _unsafe(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"fc.weight": _Call()}))


def _gone(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def _flip_mask(tensor: Tensor) -> Tensor:
    return Tensor(tensor.dtype, tensor.shape, bytes(1 - bit for bit in tensor.data))


FAULTS = (
    # the list of layers
    Fault("embedding", "ids-embedding", "this is the embedding", _ids([-1, 1, 3])),
    Fault("negative", "ids-negative", "never captured", _ids([-5, 1, 3])),
    Fault("one-too-large", "ids-range", "the target has 7 layers", _ids([1, 3, 99])),
    Fault("all-too-large", "ids-range", "choose from 0 to 5", _ids([97, 98, 99])),
    Fault("last-layer", "ids-last-layer", "output of layer 6 cannot be captured", _ids([1, 3, 6])),
    Fault("duplicate", "ids-duplicate", "name each layer once", _ids([1, 1, 5])),
    Fault("reversed", "ids-order", "permute its column blocks to [2, 1, 0]", _ids([5, 3, 1])),
    Fault("two-swapped", "ids-order", "handed over in layer order, [1, 3, 5]", _ids([1, 5, 3])),
    Fault("strings", "ids-type", "plain integer", _ids(["1", "3", "5"])),
    Fault("floats", "ids-type", "plain integer", _ids([1.0, 3.0, 5.0])),
    Fault("booleans", "ids-type", "plain integer", _ids([True, 3, 5])),
    Fault("not-a-list", "ids-type", "a list of integers", _ids("1,3,5")),
    Fault("empty-list", "ids-empty", "leave the key out", _ids([])),
    Fault("four-layers", "ids-count", "takes 3 states (768 = 3 x 256)", _ids([1, 2, 3, 5])),
    Fault("two-layers", "ids-count", "the config names 2", _ids([1, 5])),
    Fault("one-layer", "ids-count", "the config names 1", _ids([3])),
    Fault(
        "one-layer-narrow-fc",
        "fc-skipped",
        "upstream then skips fc",
        _ids([3]),
        _change("fc.weight", lambda fc: fc.columns(256)),
    ),
    Fault(
        "misspelt-key",
        "ids-misspelt",
        f"write it as eagle_config.{IDS}",
        _move(IDS, "eagle_aux_hidden_state_layers_id"),
    ),
    Fault(
        "other-key", "ids-misspelt", "eagle_config.target_layer_ids", _move(IDS, "target_layer_ids")
    ),
    Fault("misspelt-section", "ids-misspelt", "write it as eagle_config", _rename_section),
    Fault("places-disagree", "ids-disagree", "the nested and the top-level list differ", _top),
    Fault(
        "section-is-a-list",
        "eagle-config-type",
        "write it as an object",
        _set(eagle_config=[1, 3, 5]),
    ),
    Fault(
        "flag-is-a-word",
        "eagle-config-type",
        "write true or false",
        lambda c: c["eagle_config"].update(use_aux_hidden_state="yes"),
    ),
    Fault("count-disagrees", "ids-count", "the list names 3 layers", _set(num_aux_hidden_states=4)),
    Fault(
        "default-collides",
        "ids-default",
        "the default for 4 layers is [2, 2, 1]",
        _no_list,
        target=_set(num_hidden_layers=4),
    ),
    Fault(
        "pipeline-stage",
        "pipeline-stage",
        "lies on an earlier pipeline stage",
        settings={"pp_size": 2},
        arguments=("--pp-size", "2", "--disable-overlap-schedule"),
    ),
    # the kind of draft and target
    Fault(
        "eagle-with-eagle3-draft",
        "algorithm-mismatch",
        "give --speculative-algorithm EAGLE3",
        algorithm="EAGLE",
    ),
    Fault(
        "eagle3-with-eagle-draft",
        "algorithm-mismatch",
        "--speculative-algorithm EAGLE for",
        _set(architectures=["LlamaForCausalLMEagle"]),
    ),
    Fault(
        "draft-is-a-target",
        "algorithm-mismatch",
        "LlamaForCausalLM",
        _set(architectures=["LlamaForCausalLM"]),
    ),
    Fault(
        "draft-class-unknown",
        "algorithm-mismatch",
        "the EAGLE3 drafts of this tree",
        _set(architectures=["GptOssForCausalLMEagle3"]),
    ),
    Fault("no-draft-path", "draft-path-missing", "--speculative-draft-model-path", drop=True),
    Fault("draft-gone", "draft-not-found", "no such folder", files=_gone),
    Fault(
        "target-cannot-capture",
        "target-no-capture",
        "set_eagle3_layers_to_capture",
        target=_set(architectures=["OlmoForCausalLM"], model_type="olmo"),
    ),
    # files
    Fault(
        "config-broken",
        "config-unreadable",
        "valid JSON",
        files=_config_text('{"architectures": ['),
    ),
    Fault("no-architectures", "config-unreadable", "name the model class", _drop("architectures")),
    Fault("no-weights", "weights-missing", "holds no weights", files=_no_weights),
    Fault("shard-missing", "shard-missing", "model-00002-of-00002.safetensors", files=_lost_shard),
    Fault("weights-cut-short", "weights-unreadable", "was cut short", files=_cut),
    Fault("weights-are-a-pointer", "weights-unreadable", "safetensors file", files=_weights_text),
    Fault("pickle-runs-code", "weights-unsafe", "only tensors may be pickled", files=_unsafe),
    # tensors
    Fault("no-fc", "tensor-missing", "fc.weight", tensors=_without("fc.weight")),
    Fault("no-head", "tensor-missing", "lm_head.weight", tensors=_without("lm_head.weight")),
    Fault("no-norm", "tensor-missing", "random values", tensors=_without("norm.weight")),
    Fault(
        "renamed",
        "tensor-missing",
        "is it the tensor called",
        tensors=_rename("hidden_norm.weight", "hnorm.weight"),
    ),
    Fault(
        "extra-tensor",
        "tensor-unknown",
        "would be dropped",
        tensors=lambda t: t.update({"embed_norm.weight": t[_full(t, "norm.weight")]}),
    ),
    Fault(
        "head-rows",
        "tensor-shape",
        "config asks for [320, 256]",
        tensors=_change("lm_head.weight", lambda w: w.rows(319)),
    ),
    Fault(
        "projection-shape",
        "tensor-shape",
        "q_proj",
        tensors=_change("q_proj.weight", lambda w: w.columns(256)),
    ),
    Fault(
        "norm-dtype",
        "tensor-dtype",
        "save it as one of",
        tensors=_change("norm.weight", lambda w: Tensor("I16", w.shape, w.data)),
    ),
    Fault(
        "fc-of-another-target",
        "fc-width",
        "no multiple of the target's hidden size 256",
        tensors=_change("fc.weight", lambda fc: fc.columns(700)),
    ),
    # vocabulary
    Fault("no-d2t", "d2t-missing", "nothing says which", tensors=_without("d2t"), reduced=True),
    Fault(
        "d2t-short",
        "d2t-length",
        "one entry for each",
        tensors=_d2t(lambda v: v[:-1]),
        reduced=True,
    ),
    Fault(
        "d2t-out-of-range",
        "d2t-range",
        "would be target token",
        tensors=_d2t(lambda v: [*v[:-1], 4000]),
        reduced=True,
    ),
    Fault(
        "d2t-twice",
        "d2t-duplicate",
        "each draft token needs its own",
        tensors=_d2t(lambda v: [v[0], v[0] - 1, *v[2:]]),
        reduced=True,
    ),
    Fault(
        "d2t-absolute",
        "d2t-absolute",
        "target id minus draft id",
        tensors=_d2t(lambda v: [d + n for n, d in enumerate(v)]),
        reduced=True,
    ),
    Fault(
        "t2d-short",
        "t2d-length",
        "one entry for each of the target's 320",
        tensors=_change("t2d", lambda m: m.rows(319)),
        reduced=True,
    ),
    Fault(
        "t2d-disagrees",
        "t2d-disagrees",
        "name different tokens",
        tensors=_change("t2d", _flip_mask),
        reduced=True,
    ),
    Fault("draft-vocabulary-larger", "draft-vocab-size", "at most 320", _set(draft_vocab_size=400)),
    Fault(
        "draft-vocabulary-absent",
        "draft-vocab-size",
        "this class needs the key",
        _drop("draft_vocab_size"),
    ),
    Fault(
        "reduced-and-tied",
        "draft-vocab-size",
        "tie_word_embeddings false",
        _set(tie_word_embeddings=True),
        reduced=True,
    ),
    Fault(
        "vocabulary-differs",
        "vocab-size",
        "the target has 320 tokens",
        _set(vocab_size=352, draft_vocab_size=352),
    ),
    Fault(
        "rejection-sampling",
        "rejection-sampling",
        "over the whole vocabulary",
        reduced=True,
        settings={"rejection_sampling": True},
        arguments=("--speculative-use-rejection-sampling",),
    ),
    # sizes
    Fault(
        "hidden-size", "hidden-size", "the target's states have 256 elements", _set(hidden_size=128)
    ),
    Fault("target-hidden-size", "hidden-size", "target_hidden_size", _set(target_hidden_size=512)),
    Fault(
        "heads-against-tp",
        "heads-tp",
        "does not divide over --tp-size 3",
        settings={"tp_size": 3},
        launchable=False,  # a CPU server widens the heads instead
    ),
    Fault("rope-base", "rope", "a positive number", _set(rope_theta=0.0, rope_parameters=None)),
    Fault(
        "rope-kind",
        "rope",
        "write one of default",
        _set(rope_parameters=None, rope_scaling={"rope_type": "ntk", "factor": 2.0}),
    ),
    Fault(
        "rope-axes",
        "rope",
        "remove mrope_section",
        _set(
            rope_parameters=None,
            rope_scaling={"rope_type": "default", "mrope_section": [8, 12, 12]},
        ),
    ),
    Fault(
        "context-short", "context-length", "--context-length 512", _set(max_position_embeddings=512)
    ),
    Fault(
        "quantization-inherited",
        "quantization-inherited",
        "--speculative-draft-model-quantization unquant",
        settings={"quantization": "compressed-tensors"},
        arguments=("--quantization", "compressed-tensors"),
    ),
)
