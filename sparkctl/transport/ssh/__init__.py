"""SSH to a node: configuration, host keys, login, connection and channels."""
