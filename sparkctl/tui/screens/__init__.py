"""The screens of the panel, one module each; `registry` opens them by name."""
