"""log_viewer."""
