"""What flows through sparkctl: frozen values, closed sets and units. Imports nothing else of ours."""
