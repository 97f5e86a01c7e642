"""Tools of the developers: not tests, and no part of what is installed."""
