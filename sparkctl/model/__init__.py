"""The data that flows through sparkctl: frozen values, closed sets and units. Imports no other package of sparkctl."""
