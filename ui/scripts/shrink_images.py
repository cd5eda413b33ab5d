"""Stores PNG files with a palette, which makes images of the page several times smaller. Needs Pillow."""

import pathlib
import sys

from PIL import Image

MAX_COLORS = 256

for name in sys.argv[1:]:
    path = pathlib.Path(name)
    image = Image.open(path).convert("RGB")
    image.quantize(MAX_COLORS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(path, optimize=True)
