"""The recipes of the repository, and for each a recorded machine that it is for."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "recipes"
FACTS = ROOT / "test/unit/comm/data"
MACHINES = {
    "embedded": "none",
    "kimi-k2.5-b200": "b200-x8",
    "kimi-k2.5-h200": "h200-x8",
    "kimi-k2.5-rtx-pro-6000": "rtx-pro-6000-x8-two-sockets",
    "llama-3.1-8b": "h200-x1",
    "qwen3-8b": "h200-x1",
}


def recipe(name: str) -> Path:
    return RECIPES / f"{name}.toml"


def facts(name: str) -> Path:
    """The machine of a recipe."""
    return FACTS / f"{MACHINES[name]}.json"
