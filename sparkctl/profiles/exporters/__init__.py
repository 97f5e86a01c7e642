"""Export a profile: as a `docker run` line, a systemd unit, a compose file or a sparkrun recipe."""
