"""Whether a model fits on a node: what an engine claims of its memory against what the node has. Pure arithmetic."""
