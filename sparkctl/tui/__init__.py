"""The panel: a Textual app over the core that the command line uses. Whatever is imported of it comes after this."""

import os

# Textual looks at what is to be painted once in 1/60 s, and after one picture lets the next one wait for up to two of
# these: 33 ms, which a key feels. How often the panel paints by itself is its own affair (bridge, log).
os.environ.setdefault("TEXTUAL_FPS", "240")
