"""Foreign formats in: `docker run` lines, compose files, sparkrun and eugr recipes, containers. Pure; a reader makes a `Draft`."""
