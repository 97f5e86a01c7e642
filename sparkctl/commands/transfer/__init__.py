"""The parts of a transfer between Sparks: both ends of the stream, files, and images."""
