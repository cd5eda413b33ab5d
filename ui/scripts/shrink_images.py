"""Stores PNG files with a palette, which makes images of the page several times smaller. Needs Pillow.

The palette has the most frequent colors as they are, so that surfaces keep theirs. Only edges of text change.
"""

import pathlib
import sys

from PIL import Image

MAX_COLORS = 256


def shrink(path: pathlib.Path) -> None:
    image = Image.open(path).convert("RGB")
    counts = image.getcolors(image.width * image.height)
    colors = [color for _, color in sorted(counts, reverse=True)[:MAX_COLORS]]
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for color in colors for part in color])
    image.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)


for name in sys.argv[1:]:
    shrink(pathlib.Path(name))
