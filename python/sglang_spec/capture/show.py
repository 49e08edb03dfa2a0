"""Prints a comparison for people: the matrix, a few tokens, and the sentences that matter."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from .compare import Comparison


def comparison(found: Comparison, advice: str | None) -> None:
    """The table goes to stdout as everything else here: it is what was asked for."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{found.samples} samples, {found.tokens} tokens")
    console.print(_slots(found))
    if found.rows:
        console.print(_tokens(found))
    for sentence in found.sentences():
        console.print(sentence)
    if advice:
        console.print(f"remedy: {advice}")
    console.print("same capture" if found.same else "different capture")


def _slots(found: Comparison) -> Table:
    table = Table(title="relative error, median over tokens (cosine)")
    table.add_column("A")
    table.add_column("mean norm", justify="right")
    shown = _columns(found)
    for column in shown:
        table.add_column(found.columns[column].removeprefix("output of "), justify="right")
    for label, row in zip(found.labels_a, found.matrix, strict=True):
        cells = [f"{row[column].error:.3f} ({row[column].cosine:.3f})" for column in shown]
        table.add_row(label, f"{row[0].norm_a:.1f}", *cells)
    return table


def _columns(found: Comparison) -> list[int]:
    """All columns of a narrow matrix; of a wide one those near to some slot."""
    count = len(found.columns)
    if count <= 8:
        return list(range(count))
    near: set[int] = set()
    for row in found.matrix:
        best = min(range(count), key=lambda column: row[column].error)
        near |= {best - 1, best, best + 1} & set(range(count))
    return sorted(near)


def _tokens(found: Comparison) -> Table:
    table = Table(title="norm and first five values")
    for name in ("token", "slot", "norm A", "norm B", "first values A", "first values B"):
        table.add_column(name, justify="right")
    for row in found.rows:
        for slot in range(max(len(row.norms_a), len(row.norms_b))):
            table.add_row(
                str(row.token),
                str(slot),
                *(f"{n[slot]:.3f}" if slot < len(n) else "" for n in (row.norms_a, row.norms_b)),
                *(
                    " ".join(f"{x:.3f}" for x in v[slot]) if slot < len(v) else ""
                    for v in (row.first_a, row.first_b)
                ),
            )
    return table
