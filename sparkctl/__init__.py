"""sparkctl: the control panel for NVIDIA DGX Sparks.

How it is built: docs/architecture.md, with a glossary, the layers, and one picture for each flow.
"""

try:
    from sparkctl._version import __version__  # written at the build, by the tag
except ImportError:  # a checkout that nobody installed
    __version__ = "0.1.0.dev0"

__all__ = ["__version__"]
