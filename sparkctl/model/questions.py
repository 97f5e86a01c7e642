"""Questions that only the operator can answer. Commands ask them; a terminal or the panel shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.text.units import format_duration, format_size

if TYPE_CHECKING:
    from sparkctl.model.events import SetupStep


@dataclass(frozen=True, slots=True)
class HostKeyQuestion:
    """First contact with a node: is this host key fingerprint right? Answered yes or no."""

    node: NodeName
    host: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class SudoPasswordQuestion:
    """The node user's sudo password, for one command; never stored."""

    node: NodeName
    purpose: str


@dataclass(frozen=True, slots=True)
class RetryStartQuestion:
    """The last starts of this profile all failed: start it again? Answered yes or no.

    ``failures``: (unix seconds, outcome), oldest first.
    """

    node: NodeName
    profile: str
    failures: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class SetupQuestion:
    """Make these changes on the nodes? They were shown as events before. Answered yes or no."""

    steps: tuple[tuple[NodeName, SetupStep], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PullQuestion:
    """A start lacks parts of the profile: get them first? Answered yes or no.

    ``parts``: what is missing, in sentences. ``size``: bytes of those whose size is known; None: of none. ``is_whole``: of all.
    ``seconds``: how long they take at the rate of earlier pulls; None: of one of them it is not known. ``is_estimate``: one of
    the sizes is the profile's.
    """

    profile: str
    parts: tuple[str, ...]
    size: int | None
    is_whole: bool
    seconds: float | None
    is_estimate: bool

    @property
    def amount_words(self) -> str | None:
        """How much is to come, and how long that takes; None: not known."""
        if self.size is None:
            return None
        took = "" if self.seconds is None else f", about {format_duration(self.seconds)} at the speed of earlier pulls"
        before = "at least " if not self.is_whole else "about " if self.is_estimate else ""
        return f"{before}{format_size(self.size)}{took}"


@dataclass(frozen=True, slots=True)
class BenchStartQuestion:
    """Start a profile for its measurement, and stop it afterwards? ``stops``: what stops for it, and starts again at the end.

    ``changed``: those of them that would start again with other settings, each with the reason. Answered yes or no.
    """

    profile: str
    nodes: tuple[NodeName, ...]
    stops: tuple[str, ...]
    changed: tuple[tuple[str, str], ...]

    @property
    def sentence(self) -> str:
        where = " and ".join(self.nodes)
        if not self.stops:
            return f"Start {self.profile} on {where}, measure it, and stop it again?"
        warnings = "".join(
            f"{name} would start again with its profile as it is here now: {why}. " for name, why in self.changed
        )
        return (
            f"{warnings}Stop {' and '.join(self.stops)}, start {self.profile} on {where}, measure it, stop it, and start "
            f"{' and '.join(self.stops)} again at the end?"
        )


YesNoQuestion = HostKeyQuestion | RetryStartQuestion | SetupQuestion | PullQuestion | BenchStartQuestion


@dataclass(frozen=True, slots=True)
class LoginPrompt:
    """One prompt of an SSH server. ``text`` comes from the server; ``is_echoed``: the typed text may be shown."""

    text: str
    is_echoed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginQuestion:
    """What an SSH server asks at login, such as a second factor; no answer is stored.

    ``name`` and ``instructions`` come from the server and may be empty. Without prompts it is only a message.
    """

    node: NodeName
    host: str
    name: str
    instructions: str
    prompts: tuple[LoginPrompt, ...]


class Prompter(Protocol):
    """Asks the operator: on a terminal, in the panel's dialogs, or not at all."""

    async def ask_yes_no(self, question: YesNoQuestion) -> bool:
        """Return whether the operator answered yes."""
        ...

    async def ask_password(self, question: SudoPasswordQuestion) -> str | None:
        """Return the password, None if there is no answer."""
        ...

    async def ask_login(self, question: LoginQuestion) -> tuple[str, ...] | None:
        """Return an answer for each prompt, None if there is no answer."""
        ...


class NonInteractivePrompter:
    """Answers no and gives no password: for scripts, pipes and tests."""

    async def ask_yes_no(self, question: YesNoQuestion) -> bool:
        return False

    async def ask_password(self, question: SudoPasswordQuestion) -> str | None:
        return None

    async def ask_login(self, question: LoginQuestion) -> tuple[str, ...] | None:
        return None
