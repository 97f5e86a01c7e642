"""Import `docker run` lines, compose files, recipes and containers. Pure; each reader makes a `ProfileDraft`."""
