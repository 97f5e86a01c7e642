"""Starting an instance: the checks before it, the container of each rank, and the watch until it is ready."""
