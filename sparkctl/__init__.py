"""sparkctl: the control panel for NVIDIA DGX Sparks."""

__version__ = "0.1.0"
