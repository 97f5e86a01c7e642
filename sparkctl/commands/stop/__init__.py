"""The parts of a stop: the container, its log, and the proof that what it held is back."""
