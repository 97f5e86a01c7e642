"""node_programs."""
