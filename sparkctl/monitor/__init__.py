"""The live state of the nodes: samples, containers, engine figures, findings, and the store that holds them."""
