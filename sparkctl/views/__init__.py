"""View builders: they turn state into text rows for the command line and the panel alike, without side effects."""
