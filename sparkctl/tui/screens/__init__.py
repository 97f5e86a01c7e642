"""The screens of the panel, one module each; `Panel.open_screen` opens them by name."""
