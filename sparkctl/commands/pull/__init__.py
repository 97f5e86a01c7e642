"""`pull`: get a profile's image and model onto a Spark."""
