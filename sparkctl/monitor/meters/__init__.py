"""The engines' figures: throughput, latency, acceptance, averages, and the estimated memory bandwidth."""
