"""SSH, Docker, HTTP and sockets: the only layer that knows how bytes get to a Spark and back."""
