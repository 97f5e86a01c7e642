"""The history on this machine: every start, stop and switch, saved logs, and what is learned from them."""
