"""A simulated uvicorn application with a small model, as in TTS and STT servers; it prints simulated_engine.txt."""

from __future__ import annotations

from sparkctl.engines.simulation.simulated_engine import SimulatedEngine


class SimulatedSpeechServer(SimulatedEngine):
    """A FastAPI server that writes no text."""

    kind = "tts"
    default_port = 5005
    unnamed_size = 3.0
    writes_text = False
    speaks = True

    def build_page(self, path: str) -> object | None:
        """Return its documentation."""
        if path == "/health":
            return {"status": "healthy"}
        return "<!DOCTYPE html><title>docs</title>" if path in ("/", "/docs") else None


SIMULATED_ENGINES = (SimulatedSpeechServer,)
