"""The moving picture at the top of README: a golden timeline that is uncovered from left to right, over and over.

`python -m tools.moving_picture` writes docs/gpipe.svg anew. Where nothing moves (a PDF, a reader who wants less motion)
all of the picture is seen.
"""

from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE, MOVING = ROOT / "tests/drawing/golden/gpipe.svg", ROOT / "docs/gpipe.svg"
LEFT, RIGHT, TOP, BOTTOM = 74, 793, 57, 489
"""The panels of the picture, between the names of the ranks, the legends and the right margin."""
SECONDS, MOVES = 14, 0.75
"""How long a round takes, and the part of it in which something moves."""


def moving(svg: str) -> str:
    """Return the picture with a veil over its panels that draws back behind a line."""
    times = f'keyTimes="0;{MOVES};1" dur="{SECONDS}s" repeatCount="indefinite"'
    veil = (
        "<style>@media (prefers-reduced-motion:reduce){.veil{display:none}}"
        ".veil rect{fill:#fff}@supports(color:light-dark(red,red)){.veil rect{fill:light-dark(#fff,#16181c)}}</style>"
        f'<g class="veil"><rect x="{RIGHT}" y="{TOP}" width="0" height="{BOTTOM - TOP}">'
        f'<animate attributeName="x" values="{LEFT};{RIGHT};{RIGHT}" {times}/>'
        f'<animate attributeName="width" values="{RIGHT - LEFT};0;0" {times}/></rect>'
        f'<line x1="{RIGHT}" x2="{RIGHT}" y1="{TOP}" y2="{BOTTOM}" stroke="#b3261e">'
        + "".join(f'<animate attributeName="{x}" values="{LEFT};{RIGHT};{RIGHT}" {times}/>' for x in ("x1", "x2"))
        + "</line></g>"
    )
    return svg.removesuffix("</svg>") + veil + "</svg>"


if __name__ == "__main__":
    MOVING.write_text(moving(PICTURE.read_text("utf-8").strip()) + "\n", "utf-8")
