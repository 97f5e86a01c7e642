"""The panel: a Textual app over the same core as the command line."""

import os

# Textual paints at most every 1/60 s and may delay a paint by two such frames: 33 ms, which the operator notices after a
# key. The panel limits its own repaints (`PanelController.schedule_repaint`, `LogView`). Set this before Textual is imported.
os.environ.setdefault("TEXTUAL_FPS", "240")
