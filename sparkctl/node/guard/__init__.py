"""The memory guard: a process on a Spark that kills an instance before the memory runs out."""
