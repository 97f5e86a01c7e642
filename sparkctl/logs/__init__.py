"""Engine logs: classifying lines, phases and verdicts, the buffer behind the log screen, search and filters."""
