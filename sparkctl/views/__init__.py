"""View models: rows, sentences and symbols. Pure; the command line and the panel say the same thing."""
