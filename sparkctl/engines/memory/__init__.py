"""Memory estimates: the rules that engines share."""
