"""What is followed on a node for as long as somebody looks: samples, containers, and the engines' figures."""
