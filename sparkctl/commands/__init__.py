"""The verbs. Each is an async generator of events that ends with `Ended`; the CLI and the panel consume the same one."""
