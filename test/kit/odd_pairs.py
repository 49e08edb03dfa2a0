"""Odd pairs: slips, broken files and readers' corner cases that no one meant to write.

Each is refused by file, key, value and remedy, or accepted for a stated reason; none may end in a
traceback. The pairs that upstream was tried with too are in `faults`.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang_spec.hardening.fingerprint import FORMAT, NAME

from kit.checkpoints import (
    Config,
    Tensor,
    Tensors,
    integers,
    read_tensors,
    values_of,
    write_tensors,
)
from kit.faults import IDS

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
NAN, INFINITY = float("nan"), float("inf")
DEFAULT = (2, 3, 4)  # loop indices of the tiny pair where its draft names no layers
OWN = (2, 4, 6)


@dataclass(frozen=True)
class Odd:
    """An odd pair made of a copy of the tiny one.

    Attributes:
        code: of the first problem; empty where the pair is accepted.
        says: what the text of the first problem, warning or note must hold.
        at: the key of the first problem or warning, where the code alone does not say it.
        target, config, tensors, files: edits of the target's config, the draft's config, the
            draft's tensors, the draft's folder.
        loops: of an accepted pair.
        reduced: made of the pair whose draft knows part of the vocabulary.
    """

    name: str
    code: str = ""
    says: str = ""
    at: str = ""
    target: Callable[[Config], Any] | None = None
    config: Callable[[Config], Any] | None = None
    tensors: Callable[[Tensors], Any] | None = None
    files: Callable[[Path], Any] | None = None
    loops: tuple[int, ...] = OWN
    reduced: bool = False


def _set(**keys: Any) -> Callable[[Config], Any]:
    return lambda config: config.update(keys)


def _drop(*keys: str) -> Callable[[Config], Any]:
    return lambda config: [config.pop(key) for key in keys]


def _ids(value: Any) -> Callable[[Config], Any]:
    return lambda config: config["eagle_config"].update({IDS: value})


def _nested(**keys: Any) -> Callable[[Config], Any]:
    return lambda config: config["eagle_config"].update(keys)


def _instead(**keys: Any) -> Callable[[Config], Any]:
    """These keys in place of `eagle_config`."""

    def edit(config: Config) -> None:
        del config["eagle_config"]
        config.update(keys)

    return edit


def _renamed(new: str) -> Callable[[Config], Any]:
    return lambda config: config.update({new: config.pop("eagle_config")})


def _rope(**keys: Any) -> Callable[[Config], Any]:
    def edit(config: Config) -> None:
        config.pop("rope_parameters", None)
        config["rope_scaling"] = keys

    return edit


def _text(change: Callable[[str], str | bytes]) -> Callable[[Path], None]:
    """The draft's config rewritten as text."""

    def edit(folder: Path) -> None:
        file = folder / "config.json"
        made = change(file.read_text())
        file.write_bytes(made if isinstance(made, bytes) else made.encode())

    return edit


def _more(text: str) -> Callable[[Path], None]:
    return _text(lambda held: held.rstrip()[:-1] + ", " + text + "}")


def _link(name: str, to: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(to)

    return edit


def _pipe(name: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return edit


def _folder(name: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return edit


def _header(header: bytes, data: bytes = b"", length: int | None = None) -> Callable[[Path], None]:
    """Weights of this header, that claims to be `length` bytes."""

    def edit(folder: Path) -> None:
        (folder / WEIGHTS).unlink()
        claimed = struct.pack("<Q", len(header) if length is None else length)
        (folder / WEIGHTS).write_bytes(claimed + header + data)

    return edit


def _one(shape: str = "[4]", offsets: str = "[0, 4]", dtype: str = "U8") -> bytes:
    return f'{{"a": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": {offsets}}}}}'.encode()


def _index(value: Any) -> Callable[[Path], None]:
    text = value if isinstance(value, str) else json.dumps(value)
    return lambda folder: (folder / INDEX).write_text(text) and None


def _index_to(place: str) -> Callable[[Path], None]:
    """The weights at `place` (seen from the draft's folder), where the index says they are."""

    def edit(folder: Path) -> None:
        moved = folder / place
        moved.parent.mkdir(parents=True, exist_ok=True)
        names = dict.fromkeys(read_tensors(folder / WEIGHTS), place)
        (folder / WEIGHTS).rename(moved)
        (folder / INDEX).write_text(json.dumps({"weight_map": names}))

    return edit


def _beside(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).symlink_to((folder / WEIGHTS).resolve())


def _stray(folder: Path) -> None:
    names = dict.fromkeys(read_tensors(folder / WEIGHTS), WEIGHTS)
    write_tensors(folder / "old.safetensors", {"x": Tensor("F32", (1,), bytes(4))})
    (folder / INDEX).write_text(json.dumps({"weight_map": names}))


def _full(tensors: Tensors, name: str) -> str:
    return next(held for held in tensors if held == name or held.endswith("." + name))


def _change(name: str, edit: Callable[[Tensor], Tensor]) -> Callable[[Tensors], Any]:
    def change(tensors: Tensors) -> None:
        full = _full(tensors, name)
        tensors[full] = edit(tensors[full])

    return change


def _again(name: str) -> Callable[[Tensors], Any]:
    """The tensor under its name with `model.` before it too."""
    return lambda tensors: tensors.update({f"model.{name}": tensors[_full(tensors, name)]})


def _short_ints(tensor: Tensor) -> Tensor:
    values = values_of(tensor)
    return Tensor("I32", tensor.shape, struct.pack(f"<{len(values)}i", *values))


def _floats(tensor: Tensor) -> Tensor:
    return Tensor("F32", tensor.shape, struct.pack("<f", NAN) * tensor.shape[0])


def _shaped(*shape: int) -> Callable[[Tensor], Tensor]:
    return lambda tensor: Tensor(tensor.dtype, shape, tensor.data)


DEEP = "[" * 100_000 + "]" * 100_000
LONG = "9" * 5_000
_DEFAULT_NOTE = "names no layers; the default"

_CONFIG = [
    # lists of layers where nothing reads them
    Odd("target-layers", "ids-misspelt", "target_layer_ids", config=_instead(target_layer_ids=[1])),
    Odd("eagle-layers", "ids-misspelt", config=_instead(eagle_layer_ids=[1, 3, 5])),
    Odd("capture-layers", "ids-misspelt", config=_instead(layers_to_capture=[1, 3, 5])),
    Odd(
        "list-of-another-draft",
        "ids-misspelt",
        at="dflash_config.target_layer_ids",
        config=_instead(dflash_config={"target_layer_ids": [1, 3, 5]}),
    ),
    Odd("other-section", "ids-misspelt", config=_instead(speculative={"layers": [1, 3, 5]})),
    Odd("section-in-capitals", "ids-misspelt", config=_renamed("EAGLE_CONFIG")),
    Odd("section-with-number", "ids-misspelt", config=_renamed("eagle3_config")),
    Odd("flag-at-top", "ids-misspelt", "eagle_config.use_aux", config=_set(use_aux_hidden_state=0)),
    Odd("norm-is-a-word", "eagle-config-type", config=_nested(norm_before_fc="false")),
    Odd("norm-at-top-is-a-word", "eagle-config-type", config=_instead(norm_before_fc="no")),
    Odd("flag-is-zero", "eagle-config-type", config=_nested(use_aux_hidden_state=0)),
    Odd("flag-is-null", "eagle-config-type", config=_nested(use_aux_hidden_state=None)),
    Odd("no-capture-but-fc", "tensor-unknown", config=_nested(use_aux_hidden_state=False)),
    Odd("section-as-text", "eagle-config-type", config=_set(eagle_config=f'{{"{IDS}": [1]}}')),
    Odd("section-null", says=_DEFAULT_NOTE, config=_set(eagle_config=None), loops=DEFAULT),
    Odd("section-empty", says=_DEFAULT_NOTE, config=_set(eagle_config={}), loops=DEFAULT),
    Odd("ids-null", says=_DEFAULT_NOTE, config=_ids(None), loops=DEFAULT),
    Odd("both-places-agree", config=_set(**{IDS: [1, 3, 5]})),
    Odd("one-place-empty", "ids-empty", config=_set(**{IDS: []})),
    # entries of the list
    Odd("ids-nan", "ids-type", config=_ids([NAN, 3, 5])),
    Odd("ids-null-entry", "ids-type", config=_ids([1, None, 5])),
    Odd("ids-in-a-list", "ids-type", config=_ids([[1, 3, 5]])),
    Odd("ids-by-name", "ids-type", config=_ids({"low": 1, "mid": 3, "high": 5})),
    Odd("ids-one-number", "ids-type", config=_ids(3)),
    Odd("ids-as-text", "ids-type", config=_ids("[1, 3, 5]")),
    Odd("ids-of-400-digits", "ids-range", config=_ids([1, 3, 10**400])),
    # sizes
    Odd("count-as-text", "ids-count", config=_set(num_aux_hidden_states="3")),
    Odd("count-as-float", "ids-count", config=_set(num_aux_hidden_states=3.0)),
    Odd("hidden-float", "hidden-size", "256.0", config=_set(hidden_size=256.0)),
    Odd("draft-vocabulary-true", "draft-vocab-size", config=_set(draft_vocab_size=True)),
    Odd("draft-vocabulary-text", "draft-vocab-size", config=_set(draft_vocab_size="320")),
    Odd("no-heads", "config-unreadable", "= 0:", config=_set(num_attention_heads=0)),
    Odd("heads-float", "config-unreadable", "= 8.0:", config=_set(num_key_value_heads=8.0)),
    Odd("two-classes", "algorithm-mismatch", config=_set(architectures=["LlamaForCausalLM", "X"])),
    Odd("class-in-lower-case", "algorithm-mismatch", config=_set(architectures=["eagle3"])),
    Odd("quantised-by-a-word", "config-unreadable", config=_set(quantization_config="fp8")),
    Odd("quantised-by-a-list", "config-unreadable", config=_set(quantization_config=[1])),
    Odd("quantised-by-nothing", config=_set(quantization_config={})),
    Odd("text-config-a-list", "config-unreadable", config=_set(text_config=[1])),
    # rope
    Odd("rope-base-nan", "rope", config=_set(rope_theta=NAN)),
    Odd("rope-base-infinite", "rope", config=_set(rope_theta=INFINITY)),
    Odd("rope-factor-nan", "rope", config=_rope(rope_type="linear", factor=NAN)),
    Odd("rope-factor-infinite", "rope", config=_rope(rope_type="linear", factor=INFINITY)),
    Odd("rope-factor-text", "rope", config=_rope(rope_type="linear", factor="2")),
    Odd("rope-a-list", "rope", config=_set(rope_scaling=[1])),
]

_TARGET = [
    Odd("target-factor-nan", "rope", "target", target=_rope(rope_type="yarn", factor=NAN)),
    Odd("target-factor-infinite", "rope", target=_rope(rope_type="yarn", factor=INFINITY)),
    Odd(
        "target-yarn-longer",
        "context-length",
        "the server serves 16384 tokens",
        target=_rope(rope_type="yarn", factor=4.0),
    ),
    Odd(
        "target-yarn-as-long",
        target=_rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=1024),
    ),
    Odd("target-endless", "context-length", target=_set(max_position_embeddings=10**400)),
    Odd("layers-as-text", "target-size", target=_set(num_hidden_layers="7")),
    Odd("layers-float", "target-size", target=_set(num_hidden_layers=7.0)),
    Odd("layers-unsaid", "target-size", target=_drop("num_hidden_layers")),
    Odd("layers-below-zero", "target-size", target=_set(num_hidden_layers=-7)),
    Odd("width-as-text", "target-size", target=_set(hidden_size="256")),
    # A class's default, which only that class knows: a warning, as strict as one likes it.
    Odd("width-unsaid", says="write the size", at="hidden_size", target=_drop("hidden_size")),
    Odd("tokens-unsaid", says="write the size", at="vocab_size", target=_drop("vocab_size")),
    Odd("class-null", "target-no-capture", target=_set(architectures=[None])),
    Odd("class-as-text", "config-unreadable", target=_set(architectures="LlamaForCausalLM")),
]

_FILES = [
    Odd("byte-order-mark", "config-unreadable", "byte order mark", files=_text("\ufeff".__add__)),
    Odd("utf-16", "config-unreadable", files=_text(lambda text: text.encode("utf-16"))),
    Odd("trailing-comma", "config-unreadable", files=_text(lambda t: t.rstrip()[:-1] + ",}")),
    Odd("comment", "config-unreadable", files=_text("// the draft\n".__add__)),
    Odd("zeros-at-the-end", "config-unreadable", files=_text(lambda text: text + "\0\0")),
    Odd("empty-config", "config-unreadable", files=_text(lambda text: "")),
    Odd("config-a-list", "config-unreadable", files=_text(lambda text: "[1]")),
    Odd("config-too-deep", "config-unreadable", "nested too deeply", files=_more(f'"x": {DEEP}')),
    Odd("integer-too-long", "config-unreadable", files=_more(f'"x": {LONG}')),
    Odd(
        "key-twice",
        "config-unreadable",
        "'eagle_config' stands twice",
        files=_more(f'"eagle_config": {{"{IDS}": [2, 3, 4]}}'),
    ),
    Odd("config-a-folder", "config-unreadable", files=_folder("config.json")),
    Odd("config-a-pipe", "config-unreadable", "not a regular file", files=_pipe("config.json")),
    Odd("config-links-to-itself", "config-unreadable", files=_link("config.json", "config.json")),
    Odd("config-links-nowhere", "config-unreadable", files=_link("config.json", "gone.json")),
    Odd("weights-empty", "weights-unreadable", files=lambda d: _header(b"")(d)),
    Odd("weights-a-folder", "weights-unreadable", files=_folder(WEIGHTS)),
    Odd("weights-a-pipe", "weights-unreadable", "not a regular file", files=_pipe(WEIGHTS)),
    Odd("weights-link-to-themselves", "weights-unreadable", files=_link(WEIGHTS, WEIGHTS)),
    Odd("weights-link-nowhere", "weights-unreadable", files=_link(WEIGHTS, "gone")),
    Odd("no-tensors", "tensor-missing", files=_header(b"{}")),
    Odd("header-a-list", "weights-unreadable", files=_header(b"[]")),
    Odd("header-huge", "weights-unreadable", files=_header(b"{}", length=2**63)),
    Odd("header-of-20-mb", "tensor-missing", files=_header(b"{}" + b" " * 20_000_000)),
    Odd("header-too-deep", "weights-unreadable", files=_header(f'{{"a": {DEEP}}}'.encode())),
    Odd("header-integer", "weights-unreadable", files=_header(_one(f"[{LONG}]"), bytes(4))),
    Odd("shape-infinite", "weights-unreadable", files=_header(_one("[Infinity]"), bytes(4))),
    Odd("shape-below-zero", "weights-unreadable", files=_header(_one("[-2, -2]"), bytes(4))),
    Odd("shape-as-text", "weights-unreadable", files=_header(_one('"4"'), bytes(4))),
    Odd("offset-below-zero", "weights-unreadable", files=_header(_one(offsets="[-8, -4]"))),
    Odd("offset-with-gap", "weights-unreadable", files=_header(_one(offsets="[4, 8]"), bytes(8))),
    Odd("bytes-left-over", "weights-unreadable", files=_header(_one(), bytes(5))),
    # shards
    Odd("index-a-list", "weights-unreadable", at="weight_map", files=_index([1])),
    Odd("index-null", "weights-unreadable", files=_index({"weight_map": None})),
    Odd("index-of-a-list", "weights-unreadable", files=_index({"weight_map": [WEIGHTS]})),
    Odd("index-empty", "weights-unreadable", files=_index({"weight_map": {}})),
    Odd("index-names-a-number", "weights-unreadable", files=_index({"weight_map": {"a": 1}})),
    Odd("index-names-a-list", "weights-unreadable", files=_index({"weight_map": {"a": [WEIGHTS]}})),
    Odd("index-names-nothing", "weights-unreadable", files=_index({"weight_map": {"a": ""}})),
    Odd("index-too-deep", "weights-unreadable", files=_index(f'{{"weight_map": {DEEP}}}')),
    Odd("shard-of-a-neighbour", "shard-outside", files=_index_to("../other/model.safetensors")),
    Odd("shard-in-a-subfolder", "shard-outside", files=_index_to("part/model.safetensors")),
    Odd("same-weights-twice", "tensor-twice", files=_beside("copy.safetensors")),
    Odd("mistral-twice", files=_beside("consolidated.safetensors")),
    Odd("file-the-index-leaves-out", files=_stray),
]

_TENSORS = [
    Odd("d2t-of-32-bits", tensors=_change("d2t", _short_ints), reduced=True),
    Odd("d2t-nan", "tensor-dtype", tensors=_change("d2t", _floats), reduced=True),
    Odd(
        "d2t-unsigned",
        "tensor-dtype",
        tensors=_change("d2t", lambda t: Tensor("U64", t.shape, t.data)),
        reduced=True,
    ),
    Odd("d2t-a-column", "d2t-length", tensors=_change("d2t", _shaped(192, 1)), reduced=True),
    Odd(
        "d2t-beyond",
        "d2t-range",
        tensors=_change("d2t", lambda t: integers([2**62, *values_of(t)[1:]])),
        reduced=True,
    ),
    Odd("d2t-under-two-names", "tensor-twice", tensors=_again("d2t"), reduced=True),
    Odd("fc-under-two-names", "tensor-twice", tensors=_again("fc.weight")),
    Odd("fc-transposed", "tensor-shape", tensors=_change("fc.weight", _shaped(768, 256))),
    Odd("fc-flat", "tensor-shape", "a matrix", tensors=_change("fc.weight", _shaped(768 * 256))),
    Odd(
        "fc-of-8-bits",
        "tensor-dtype",
        tensors=_change("fc.weight", lambda t: Tensor("F8_E4M3", t.shape, t.data[::2])),
    ),
    Odd(
        "t2d-float",
        "tensor-dtype",
        tensors=_change("t2d", lambda t: Tensor("F32", t.shape, bytes(4 * t.shape[0]))),
        reduced=True,
    ),
]


def _marks(edit: Callable[[Config], Any]) -> Callable[[Path], None]:
    """A fingerprint beside the draft, edited."""

    def write(folder: Path) -> None:
        trace = {"takes": "output of layer 1", "norms": [1.0] * 6, "first": [[0.5] * 5] * 6}
        prompt = {"input_ids": [1, 2, 3, 4, 5, 6], "slots": [trace] * 3, "layers": [trace] * 7}
        held = json.loads(json.dumps({"format": FORMAT, "prompts": [prompt]}))
        edit(held)
        (folder / NAME).write_text(json.dumps(held))

    return write


def _slot(**keys: Any) -> Callable[[Path], None]:
    return _marks(lambda held: held["prompts"][0]["slots"][0].update(keys))


_UNREADABLE = "fingerprint-unreadable"
_FINGERPRINT = [
    Odd("marks-right", files=_marks(lambda held: None)),
    Odd(
        "marks-of-two-slots",
        "fingerprint-slots",
        files=_marks(lambda held: held["prompts"][0]["slots"].pop()),
    ),
    Odd("marks-of-nothing", _UNREADABLE, "no prompts", files=_marks(_set(prompts=[]))),
    Odd("marks-null", _UNREADABLE, files=_marks(_set(prompts=None))),
    Odd("marks-of-a-later-format", _UNREADABLE, files=_marks(_set(format="2"))),
    Odd(
        "marks-without-layers",
        _UNREADABLE,
        files=_marks(lambda held: held["prompts"][0].update(layers=[])),
    ),
    Odd("marks-nan", _UNREADABLE, "no number", files=_slot(norms=[NAN] * 6)),
    Odd("marks-as-text", _UNREADABLE, files=_slot(norms=["one"] * 6)),
    Odd("marks-short", _UNREADABLE, "6 tokens", files=_slot(norms=[1.0] * 5)),
    Odd("marks-of-four-values", _UNREADABLE, files=_slot(first=[[0.5] * 4] * 6)),
    Odd("marks-too-deep", _UNREADABLE, files=lambda d: (d / NAME).write_text(DEEP) and None),
]

ODD = [*_CONFIG, *_TARGET, *_FILES, *_TENSORS, *_FINGERPRINT]
