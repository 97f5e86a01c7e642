"""Parse pasted shell text into commands, as far as possible without running any of it. Pure and linear.

First undo what forums do to a line: prompts, code fences, curly quotes, long dashes, blanks after a backslash.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparkctl.engines.flags.command_flags import find_shell_script
from sparkctl.profiles.env_references import (
    escape_references,
    format_reference,
    has_references,
    is_variable_name,
    resolve_defaults,
)

MAX_CHARS = 128 * 1024  # a longer text is read up to here
_TYPOGRAPHY = str.maketrans({"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'", "\u00a0": " ", "\u200b": None,
                             "\ufeff": None, "\u2028": "\n", "\u2029": "\n"})  # fmt: skip
_LONG_DASH = re.compile(r"(?<![^\s])[\u2013\u2014](?=[A-Za-z])")
_SHELL_PROMPT = re.compile(r"^[ \t]*(?:[\w.-]+@[\w.-]+(?::[^\s$#]*)?[$#]|\$|>)[ \t]+", re.MULTILINE)
_CODE_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*$", re.MULTILINE)
_CONTINUATION_WITH_BLANKS = re.compile(r"\\[ \t]+$", re.MULTILINE)
_BACKTICK_CONTINUATION = re.compile(r"[ \t]`[ \t]*$", re.MULTILINE)
_OPERATORS = ("&&", "||", ";;", "|&", ";", "|", "&", "(", ")")
_PARAMETER_PATTERN = re.compile(
    r"\$(?:(?P<bare>[A-Za-z_]\w*)|\{(?P<name>[A-Za-z_]\w*)(?:(?P<how>:?[-=])(?P<default>[^{}$`\"']*)|:?[?][^{}]*)?\})",
    re.ASCII,
)
_SPECIAL_PARAMETER = re.compile(r"\$(?:[0-9@*#?$!-]|\{[^}]*\})")
_ARGUMENT_DEFAULT = re.compile(
    r"\$\{[1-9][0-9]{0,2}:?-(?P<default>[^{}$`\"']*)\}"
)  # a script that is run without arguments
_ANSI_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "e": "\x1b"}


@dataclass(frozen=True, slots=True)
class ShellWord:
    """``text`` in a profile's notation; ``unknown``: pieces that only a shell can evaluate, such as ``$(pwd)``."""

    text: str
    unknown: tuple[str, ...] = ()
    quoted: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True)
class ShellCommand:
    """One simple command. ``after``: the operator after it, empty at the end of a line; ``unclosed``: the beginning of
    a quote that is still open at the end of the text.
    """

    words: list[ShellWord] = field(default_factory=list)
    redirections: list[str] = field(default_factory=list)
    after: str = ""
    unclosed: str | None = None

    def as_text(self) -> str:
        """Return the command as it was written, but for its quotes."""
        return " ".join(word.text for word in self.words).replace("$${", "${")


def clean_pasted_text(text: str) -> str:
    """Return pasted text without the changes of a forum, a chat or a terminal's prompt."""
    text = text[:MAX_CHARS].replace("\r\n", "\n").replace("\r", "\n").translate(_TYPOGRAPHY)
    text = _CODE_FENCE.sub("", _LONG_DASH.sub("--", text))
    text = _SHELL_PROMPT.sub("", text)
    text = _CONTINUATION_WITH_BLANKS.sub(r"\\", text)
    if _BACKTICK_CONTINUATION.search(text) and text.count("`") == len(_BACKTICK_CONTINUATION.findall(text)):
        text = _BACKTICK_CONTINUATION.sub(r" \\", text)  # PowerShell's line continuation
    return re.sub(r"(?<!\\)\n(?=[ \t]*--?[A-Za-z])", r" \\\n", text)  # a flag never begins a command


class _ShellReader:
    def __init__(self, text: str, known: Mapping[str, str]) -> None:
        self.text, self.at, self.known = text, 0, dict(known)
        self.commands: list[ShellCommand] = []
        self.command = ShellCommand()
        self.parts: list[str] = []
        self.unresolved: list[str] = []
        self.in_word = self.quoted = False
        self.redirecting: str | None = None

    def read_commands(self) -> list[ShellCommand]:
        text = self.text
        while self.at < len(text):
            char = text[self.at]
            if char == "\\":
                self._read_backslash()
            elif char in " \t":
                self._end_word()
                self.at += 1
            elif char == "\n":
                self._end_command("")
                self.at += 1
            elif char == "#" and not self.in_word:
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            elif char == "'":
                self._read_single_quotes()
            elif char == '"':
                self._read_double_quotes()
            elif char in "$`":
                self._read_dollar(quoted=False)
            elif char in "<>":
                self._read_redirection()
            elif operator := next((one for one in _OPERATORS if text.startswith(one, self.at)), None):
                self._end_command(operator)
                self.at += len(operator)
            else:
                end = _find_plain_text_end(text, self.at)
                self._append_text(escape_references(text[self.at : end]))
                self.at = end
        self._end_command("")
        return self.commands

    def _append_text(self, text: str) -> None:
        self.in_word = True
        self.parts.append(text)

    def _read_backslash(self) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        if following and following != "\n":
            self._append_text(escape_references(following))
        self.at += 2

    def _read_single_quotes(self) -> None:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            end = len(self.text)
            self._mark_unclosed_quote(self.at)
        self._append_text(escape_references(self.text[self.at + 1 : end]))
        self.quoted = True
        self.at = end + 1

    def _mark_unclosed_quote(self, start: int) -> None:
        self.command.unclosed = self.text[start : start + 40].split("\n")[0]

    def _read_double_quotes(self) -> None:
        start = self.at
        self.at += 1
        self._append_text("")
        self.quoted = True
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            if char == "\\":
                following = self.text[self.at + 1 : self.at + 2]
                if following != "\n":
                    self._append_text(escape_references(following if following in '$`"\\' else char + following))
                self.at += 2
            elif char in "$`":
                self._read_dollar(quoted=True)
            else:
                end = re.compile(r'[\\"$`]').search(self.text, self.at)
                stop = end.start() if end else len(self.text)
                self._append_text(escape_references(self.text[self.at : stop]))
                self.at = stop
        if self.at >= len(self.text):
            self._mark_unclosed_quote(start)
        self.at += 1

    def _read_dollar(self, *, quoted: bool) -> None:
        text = self.text
        if text[self.at] == "`":
            end = text.find("`", self.at + 1)
            self._add_unresolved(text[self.at : len(text) if end < 0 else end + 1])
        elif text.startswith("$(", self.at):
            self._add_unresolved(text[self.at : _find_closing_bracket(text, self.at + 1)])
        elif text.startswith("$'", self.at) and not quoted:
            self._read_ansi_quotes()
        elif match := _PARAMETER_PATTERN.match(text, self.at):
            name = match["bare"] or match["name"]
            self.at = match.end()
            if name not in self.known:
                self._append_text(format_reference(name, match["default"]))
            else:
                self._append_value(self.known[name], quoted=quoted)
        elif match := _ARGUMENT_DEFAULT.match(text, self.at):
            self.at = match.end()
            self._append_value(escape_references(match["default"]), quoted=quoted)
        elif match := _SPECIAL_PARAMETER.match(text, self.at):
            self._add_unresolved(match[0])
        else:
            self._append_text("$")
            self.at += 1

    def _append_value(self, value: str, *, quoted: bool) -> None:
        """Add a variable's value. Outside of quotes, blanks in it separate words."""
        if quoted:
            self._append_text(value)
            return
        for position, part in enumerate(re.split(r"[ \t\n]+", value)):
            if position:
                self._end_word()
            if part:
                self._append_text(part)

    def _read_ansi_quotes(self) -> None:
        end = self.at + 2
        found = ""
        while end < len(self.text) and self.text[end] != "'":
            if self.text[end] == "\\" and end + 1 < len(self.text):
                end += 1
                found += _ANSI_ESCAPES.get(self.text[end], "\\" + self.text[end])
            else:
                found += self.text[end]
            end += 1
        if end >= len(self.text):
            self._mark_unclosed_quote(self.at)
        self._append_text(escape_references(found))
        self.quoted = True
        self.at = end + 1

    def _add_unresolved(self, piece: str) -> None:
        self._append_text(escape_references(piece))
        self.unresolved.append(piece)
        self.at += max(1, len(piece))

    def _read_redirection(self) -> None:
        match = re.compile(r"<<<?-?|[<>]&[0-9-]?|>>|>\||[<>]").match(self.text, self.at)
        assert match is not None
        number = "".join(self.parts)
        if self.in_word and number.isdigit() and not self.quoted:
            self.parts, self.in_word = [], False
        else:
            number = ""
            self._end_word()
        self.at = match.end()
        if match[0].startswith(("<&", ">&")):
            self.command.redirections.append(number + match[0])
        else:
            self.redirecting = number + match[0]

    def _end_word(self) -> None:
        if not self.in_word:
            return
        word = ShellWord("".join(self.parts), tuple(self.unresolved), self.quoted)
        if self.redirecting is not None:
            self.command.redirections.append(f"{self.redirecting} {word.text}")
            self.redirecting = None
        else:
            self.command.words.append(word)
        self.parts, self.unresolved, self.in_word, self.quoted = [], [], False, False

    def _end_command(self, operator: str) -> None:
        self._end_word()
        self.redirecting = None
        if self.command.words or self.command.redirections:
            self.command.after = operator
            self._record_assignments(self.command)
            self.commands.append(self.command)
        elif self.commands and operator and not self.commands[-1].after:
            self.commands[-1].after = operator
        self.command = ShellCommand()

    def _record_assignments(self, command: ShellCommand) -> None:
        """Record what a line sets for the lines below it."""
        words = command.words[1:] if command.words and command.words[0].text in ("export", "declare") else command.words
        pairs = [parse_assignment(word) for word in words]
        if all(pairs):
            self.known.update({pair[0]: pair[1] for pair in pairs if pair is not None})


def parse_shell(text: str, known: Mapping[str, str] | None = None) -> list[ShellCommand]:
    """Return the commands of a text; variables in ``known``, and those that the text sets before, are replaced."""
    return _ShellReader(text[:MAX_CHARS], known or {}).read_commands()


def parse_assignment(word: ShellWord) -> tuple[str, str] | None:
    """Return name and value of ``NAME=value``, None for any other word."""
    name, equals, value = word.text.partition("=")
    return (name, value) if equals and is_variable_name(name) and not word.unknown else None


def _find_plain_text_end(text: str, start: int) -> int:
    match = re.compile(r"[\s\\'\"$`<>;|&()]").search(text, start + 1)
    return match.start() if match else len(text)


def _find_closing_bracket(text: str, start: int) -> int:
    """Return where the bracket that opens at ``start`` closes, or the end of the text."""
    depth = 0
    for match in re.compile(r"[()]").finditer(text, start):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return match.end()
    return len(text)


_HARMLESS_COMMAND = re.compile(r"^(set\s+[-+]\S+(\s+pipefail)?|cd\s+(?P<directory>/\S*))$")


@dataclass(frozen=True, slots=True)
class UnwrappedCommand:
    """``words`` are literal; ``env``: what the script sets before its command, ``directory``: where it changes to.
    ``words`` None: it stays a script.
    """

    words: tuple[str, ...] | None
    env: tuple[tuple[str, str], ...] = ()
    directory: str | None = None


def find_sole_shell_script(words: Sequence[str]) -> str | None:
    """Return the script of ``bash -lc '...'``, None for any other command, also if words follow the script."""
    at = find_shell_script(words)
    return None if at is None or words[-1] != words[at] or not words[-2].startswith("-") else words[at]


def unwrap_shell_command(script: str, env: Mapping[str, str]) -> UnwrappedCommand:
    """Return the one command of a script; its variables come from ``env`` (a profile's notation)."""
    commands = parse_shell(script.strip(), {name: value for name, value in env.items() if not has_references(value)})
    found: dict[str, str] = {}
    whole = UnwrappedCommand(None)
    if len(script) > MAX_CHARS:
        return whole
    rest: list[ShellCommand] = []
    directory: str | None = None
    for command in commands:
        harmless = _HARMLESS_COMMAND.match(_join_command_words(command))
        if harmless is None:
            rest.append(command)
        elif (went := harmless["directory"]) is not None:
            if rest or has_references(went) or command.after not in ("", "&&", ";"):
                return whole  # something before may have run elsewhere
            directory = resolve_defaults(went)
    for position, command in enumerate(rest):
        if command.redirections or command.after not in ("", "&&", ";") or any(word.unknown for word in command.words):
            return whole
        words = list(command.words)
        exported = bool(words) and words[0].text == "export"
        words = words[1:] if exported else words
        leading: dict[str, str] = {}
        while words and (pair := parse_assignment(words[0])) is not None:
            leading[pair[0]] = pair[1]
            words = words[1:]
        found |= leading
        if not words:
            continue
        if exported or position != len(rest) - 1:
            return whole
        texts = [resolve_defaults(word.text) if not has_references(word.text) else None for word in words]
        if any(text is None for text in texts):
            return whole
        plain = [text for text in texts if text is not None]
        plain = plain[1:] if plain[0] == "exec" else plain
        if not plain or any(has_references(value) for value in found.values()):
            return whole
        if any(_has_glob(word) for word in words):
            return whole
        return UnwrappedCommand(tuple(plain), tuple(found.items()), directory)
    return whole


def _join_command_words(command: ShellCommand) -> str:
    return " ".join(word.text for word in command.words) if not command.redirections else "<"


def _has_glob(word: ShellWord) -> bool:
    """Tell whether a word has a glob outside of quotes, which only the shell can expand."""
    return not word.quoted and re.search(r"\*|^~|\{[^{}]*,[^{}]*\}", word.text) is not None
