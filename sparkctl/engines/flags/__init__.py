"""Flag catalogues: the flags of each engine version, and flags on a command line."""
