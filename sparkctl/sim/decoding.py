"""What an engine counts while it generates: tokens, drafts, requests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sparkctl.sim.clock import Pace
from sparkctl.sim.launch import Launch


@dataclass(slots=True)
class Counts:
    """Totals since the start; ``steps`` are decode steps summed over requests."""

    generated: float = 0.0
    prompt: float = 0.0
    steps: float = 0.0
    requests: int = 0

    def since(self, earlier: Counts) -> Counts:
        """Return what came since an earlier reading."""
        return Counts(
            self.generated - earlier.generated,
            self.prompt - earlier.prompt,
            self.steps - earlier.steps,
            self.requests - earlier.requests,
        )

    def copy(self) -> Counts:
        """Return a reading that stands still."""
        return Counts(self.generated, self.prompt, self.steps, self.requests)


class Decoding:
    """Requests served by HTTP, and, where a scenario asks for it, a steady load that nobody sees arrive."""

    def __init__(self, launch: Launch, pace: Pace) -> None:
        self.launch = launch
        self.pace = pace
        self.background = 0  # requests always running
        self.served = 0  # requests running for somebody
        self._counts = Counts()
        self._last = asyncio.get_running_loop().time()

    @property
    def running(self) -> int:
        """Requests running now."""
        return self.background + self.served

    @property
    def rate(self) -> float:
        """Generated tokens per second now, all requests together."""
        return self.launch.tokens_per_second * self.running**0.85 if self.running else 0.0

    def counts(self) -> Counts:
        """Return the totals as of now."""
        now = asyncio.get_running_loop().time()
        passed, self._last = (now - self._last) * self.pace.decode, now
        if self.background:
            tokens = self.launch.tokens_per_second * self.background**0.85 * passed
            self._counts.generated += tokens
            self._counts.steps += tokens / self.launch.accept_length
            self._counts.prompt += tokens * 1.7
            self._counts.requests = int(self._counts.generated // 400)
        return self._counts.copy()

    def add(self, prompt: int, generated: int) -> None:
        """Count a request that was served."""
        self._counts.prompt += prompt
        self._counts.generated += generated
        self._counts.steps += generated / self.launch.accept_length
        self._counts.requests += 1

    async def think(self, prompt: int) -> None:
        """Wait as long as a prompt of so many tokens takes to read."""
        await asyncio.sleep((0.04 + prompt / 1800) / self.pace.decode)

    async def generate(self, tokens: int) -> None:
        """Wait as long as so many tokens of one request take."""
        await asyncio.sleep(tokens / (self.launch.tokens_per_second * self.pace.decode))


def by_position(share: float, drafted: int) -> list[float]:
    """Return how often each draft token is accepted: the later the less."""
    return [max(0.0, min(0.97, share * (1.25 - 0.25 * at))) for at in range(drafted)]
