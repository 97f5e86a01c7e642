"""Estimate whether a model fits on a node: the memory an engine needs against the memory the node has. Pure arithmetic."""
