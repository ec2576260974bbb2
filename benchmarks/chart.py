"""Bars as an SVG file, drawn by hand: the page they stand on needs no library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

WIDTH, ROW, LEFT, RIGHT = 760, 26, 250, 90
OURS, THEIRS = "#1f6feb", "#9aa4b2"


def bars(
    path: Path, title: str, rows: Sequence[tuple[str, float, str]], *, lower_is_better: bool = False
) -> None:
    """One bar for each (label, value, text); labels that begin with `penstock` stand out."""
    height = 48 + ROW * len(rows)
    longest = max((value for _, value, _ in rows), default=1) or 1
    note = "lower is better" if lower_is_better else "higher is better"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="22" font-size="15" font-weight="600">{escape(title)} '
        f'<tspan fill="#6b7280" font-size="12" font-weight="400">({note})</tspan></text>',
    ]
    for index, (label, value, text) in enumerate(rows):
        y = 40 + ROW * index
        length = (WIDTH - LEFT - RIGHT) * value / longest
        colour = OURS if label.startswith("penstock") else THEIRS
        parts.append(f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(label)}</text>')
        parts.append(
            f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{ROW - 8}" rx="2" '
            f'fill="{colour}"/>'
        )
        parts.append(f'<text x="{LEFT + length + 6:.1f}" y="{y + 14}">{escape(text)}</text>')
    parts.append("</svg>\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts))
