"""A model folder as the contract sees it: its config and the headers of its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import pickled
from .report import Findings
from .safetensors_header import HeaderError, TensorInfo, read_header

INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Checkpoint:
    """A folder and its config.

    Attributes:
        config: config.json as it is.
        text: the part that describes the language model (`text_config` of a multimodal wrapper).
        prefix: how keys of `text` are written from the root of the file.
    """

    folder: Path
    config: dict[str, Any]
    text: dict[str, Any]
    prefix: str

    @property
    def config_file(self) -> Path:
        return self.folder / "config.json"

    @property
    def architecture(self) -> str:
        return str(self.config["architectures"][0])

    def integer(self, *keys: str) -> int | None:
        """The first of these keys of `text` that holds an integer."""
        for key in keys:
            value = self.text.get(key)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        return None

    @property
    def layers(self) -> int | None:
        return self.integer("num_hidden_layers", "num_layers", "n_layer")


def read_config(
    folder: Path, findings: Findings, overrides: Mapping[str, Any] | None = None
) -> Checkpoint | None:
    """The folder's config; None after a refusal if there is nothing to go on with."""
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text())
    except FileNotFoundError:
        findings.refuse(
            "config-unreadable", file, "config.json", None, "the folder holds no config.json"
        )
        return None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        findings.refuse(
            "config-unreadable", file, "config.json", str(error), "write it as valid JSON"
        )
        return None
    if not isinstance(config, dict):
        findings.refuse(
            "config-unreadable", file, "config.json", config, "it must be a JSON object"
        )
        return None
    config |= overrides or {}
    architectures = config.get("architectures")
    if not (isinstance(architectures, list) and architectures):
        findings.refuse(
            "config-unreadable",
            file,
            "architectures",
            architectures,
            'name the model class, for instance ["LlamaForCausalLM"]',
        )
        return None
    text = config.get("text_config")
    if isinstance(text, dict):
        return Checkpoint(folder, config, text, "text_config.")
    return Checkpoint(folder, config, config, "")


def read_tensors(folder: Path, findings: Findings) -> dict[str, TensorInfo] | None:
    """Every tensor of the checkpoint by name; None after a refusal, or where none can be read.

    As upstream does, `.bin` files are looked at only where there are no safetensors.
    """
    files = _listed(folder, findings)
    if files is None:
        return None
    if not files:
        return pickled.read_tensors(folder, findings)
    tensors: dict[str, TensorInfo] = {}
    for file in files:
        try:
            tensors.update(read_header(file))
        except (HeaderError, OSError) as error:
            findings.refuse(
                "weights-unreadable",
                file,
                "header",
                str(error),
                "download or copy the file again and compare its checksum",
            )
            return None
    return tensors


def _listed(folder: Path, findings: Findings) -> list[Path] | None:
    """The safetensors files upstream loads: those of the index if there is one, else all."""
    index = folder / INDEX
    if not index.is_file():
        return sorted(folder.glob("*.safetensors"))
    try:
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, KeyError, AttributeError) as error:
        findings.refuse(
            "weights-unreadable",
            index,
            "weight_map",
            repr(error),
            "download the index again; it must map every tensor to its file",
        )
        return None
    missing = [name for name in names if not (folder / name).is_file()]
    for name in missing:
        findings.refuse(
            "shard-missing",
            index,
            "weight_map",
            name,
            f"the index names {name}, which is not there; download it into {folder}",
        )
    return None if missing else [folder / name for name in names]
