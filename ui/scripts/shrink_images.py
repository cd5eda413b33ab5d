"""Stores PNG files with a palette, which makes images of the page several times smaller. Needs Pillow.

The palette has the most frequent colors as they are, so that surfaces keep theirs. Colors that are nearly equal to one
of them are left out, so that rare ones, such as the logo's, have a place. Only edges of text change.
"""

import pathlib
import sys

from PIL import Image

MAX_COLORS = 256
# Candidates for the palette, by frequency. All further colors are those of a few pixels.
MAX_CANDIDATES = 6_000
# Colors are nearly equal if no channel differs by more.
NEAR_DISTANCE = 10


def choose_palette(colors: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    chosen: list[tuple[int, int, int]] = []
    for color in colors[:MAX_CANDIDATES]:
        if len(chosen) == MAX_COLORS:
            break
        if all(max(abs(a - b) for a, b in zip(color, other)) > NEAR_DISTANCE for other in chosen):
            chosen.append(color)
    rest = [color for color in colors if color not in chosen]
    return chosen + rest[: MAX_COLORS - len(chosen)]


def shrink(path: pathlib.Path) -> None:
    image = Image.open(path).convert("RGB")
    counts = image.getcolors(image.width * image.height)
    colors = choose_palette([color for _, color in sorted(counts, reverse=True)])
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for color in colors for part in color])
    image.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)


for name in sys.argv[1:]:
    shrink(pathlib.Path(name))
