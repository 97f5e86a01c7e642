"""Real engines on a CPU: installed, started, loaded and broken, with sparkctl's own reading held against what they did."""
