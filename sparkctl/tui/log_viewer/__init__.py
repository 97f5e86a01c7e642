"""The log viewer: follows, searches, filters and saves the logs of instances."""
