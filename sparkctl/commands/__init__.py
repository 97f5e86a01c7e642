"""The commands: each is an async generator of events that ends with `CommandEnded`; the CLI and the panel consume the
same one.
"""
