"""The parts of a start: what is asked and decided before, the container of each rank, and the watching of it until it is ready."""
