"""Parse pasted shell text into commands, as far as possible without running any of it. Pure and linear.

First undo what forums do to a line: prompts, code fences, curly quotes, long dashes, blanks after a backslash.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from sparkctl.engines.engine_flags import find_shell_script
from sparkctl.errors import InvalidInput
from sparkctl.model.lazy_dataclass import dataclass
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
_SHELL_PROMPT = re.compile(
    r"^[ \t]*(?:\([\w.-]+\)[ \t]*)?(?:[\w.-]+@[\w.-]+(?::[^\s$#]*)?[$#]|[\w.-]+:[~/][^\s$#]*[$#]|[$❯➜])[ \t]+",
    re.MULTILINE,
)
_CONTINUATION_PROMPT = re.compile(r"^[ \t]*>[ \t]+", re.MULTILINE)  # also the mark of a quoted text
_CODE_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*$", re.MULTILINE)
_CONTINUATION_WITH_BLANKS = re.compile(r"\\[ \t]++(?:#[^\n]*)?$", re.MULTILINE)  # a comment may stand behind it
_BACKTICK_CONTINUATION = re.compile(r"[ \t]`[ \t]*$", re.MULTILINE)
_EMPTY_REFERENCE = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*):?-\}")
_OPERATORS = ("&&", "||", ";;", "|&", ";", "|", "&", "(", ")")
_PARAMETER_PATTERN = re.compile(
    r"\$(?:(?P<bare>[A-Za-z_]\w*)|\{(?P<name>[A-Za-z_]\w*)(?:(?P<how>:?[-=])(?P<default>[^{}$`\"']*)|:?[?][^{}]*)?\})",
    re.ASCII,
)
_ARRAY_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<more>\+?)=", re.ASCII)
_BRACED = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<all>\[[@*]\])?(?:(?P<how>:?[-=+])(?P<word>.*))?", re.ASCII | re.DOTALL)
_PLACEHOLDER = re.compile(r"<[A-Za-z][\w./:-]*(?: [\w./:-]+){0,5}>", re.ASCII)
_SPECIAL_PARAMETER = re.compile(r"\$(?:[0-9@*#?$!-]|\{[^}]*\})")
_NEXT_FLAG = re.compile(r"\n(?:[ \t]*+(?:#[^\n]*+)?\n)*+(?=[ \t]*+--?[A-Za-z])")
_OPENING_WORDS = {"if": "fi", "case": "esac", "for": "done", "while": "done", "until": "done", "select": "done"}
_BLOCK_END = re.compile(r"(?:^|[;\n])[ \t]*+(fi|esac|done)\b")
_LEADING_WORDS = frozenset({"then", "else", "elif", "do", "{", "!", "if", "while", "until"})
_DECLARING_WORDS = frozenset({"export", "declare", "local", "readonly", "typeset"})
_MAX_DOUBTS = 20
_CONDITIONAL = "set under a condition of the script, which is not evaluated"
_MAX_BRACES = 8
_QUOTED_SCRIPT = re.compile(r"""(?<!\S)-[a-z]*c[ \t]+(?:'[^']*+'|"(?:[^"\\]|\\.)*+")""", re.DOTALL)
_HEREDOC = re.compile(r"(?<!<)<<-?[ \t]*(['\"]?)(?P<end>[A-Za-z_]\w*)\1", re.ASCII)
_ARGUMENT_DEFAULT = re.compile(
    r"\$\{[1-9][0-9]{0,2}:?-(?P<default>[^{}$`\"']*)\}"
)  # a script that is run without arguments
_FUNCTION = re.compile(
    r"^[ \t]*+(?:function[ \t]++)?(?P<name>[A-Za-z_][\w-]*+)[ \t]*+(?:\([ \t]*\))?\s*+\{", re.MULTILINE
)
_PASSED_ON = re.compile(
    r"(?:^|[;&|{]|\b(?:then|do|else|exec|sudo))[ \t]*+(?P<docker>(?:docker|podman|nerdctl)[ \t]++)?\"\$\{?@\}?\"",
    re.MULTILINE,
)
_CALL = re.compile(
    r"(?P<before>(?:^|[;&|]|\b(?:then|do|else))[ \t]*+)(?P<name>[A-Za-z_][\w-]*+)(?P<blanks>[ \t]++)(?=[^\s({])",
    re.MULTILINE,
)
_MAX_FUNCTIONS, _MAX_FUNCTION_CHARS = 50, 2000
_ANSI_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "e": "\x1b"}


@dataclass(frozen=True, slots=True)
class ShellWord:
    """``text`` in a profile's notation; ``unknown``: pieces that only a shell can evaluate, such as ``$(pwd)``."""

    text: str
    unknown: tuple[str, ...] = ()
    quoted: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True, kw_only=True)
class ShellCommand:
    """One simple command. ``after``: the operator after it, empty at the end of a line; ``unclosed``: the beginning of
    a quote that is still open at the end of the text; ``doubts``: names whose value is not certain, and why.
    """

    words: list[ShellWord] = field(default_factory=list)
    redirections: list[str] = field(default_factory=list)
    after: str = ""
    unclosed: str | None = None
    doubts: list[tuple[str, str]] = field(default_factory=list)

    def list_doubts(self) -> list[str]:
        """Return a sentence for each reason to doubt what variables hold."""
        found: dict[str, list[str]] = {}
        for name, why in self.doubts:
            found.setdefault(why, []).append(name)
        # Not `NAME: why`: behind the name of a secret that would be masked as its value.
        return [f"{why}; compare the profile with the script ({', '.join(names)})." for why, names in found.items()]

    def as_text(self) -> str:
        """Return the command as it was written, but for its quotes."""
        return " ".join(word.text for word in self.words).replace("$${", "${")


def clean_pasted_text(text: str) -> str:
    """Return pasted text without the changes of a forum, a chat or a terminal's prompt."""
    text = text[:MAX_CHARS].replace("\r\n", "\n").replace("\r", "\n").translate(_TYPOGRAPHY)
    text = _CODE_FENCE.sub("", _LONG_DASH.sub("--", text))
    if _has_continuation_prompts(text):
        text = _CONTINUATION_PROMPT.sub("", text)
    text = _SHELL_PROMPT.sub("", text)
    text = _CONTINUATION_WITH_BLANKS.sub(r"\\", text)
    if _BACKTICK_CONTINUATION.search(text) and text.count("`") == len(_BACKTICK_CONTINUATION.findall(text)):
        text = _BACKTICK_CONTINUATION.sub(r" \\", text)  # PowerShell's line continuation
    text = re.sub(r"(?<!\\)\n(?=[ \t]*--?[A-Za-z])", r" \\\n", text)  # a flag never begins a command
    return _replace_wrapper_calls(text)


def _replace_wrapper_calls(text: str) -> str:
    """Return a script with the calls of pass-through functions replaced: ``run_docker run -d`` by ``docker run -d``."""
    wrappers: dict[str, str] = {}
    for match in itertools.islice(_FUNCTION.finditer(text), _MAX_FUNCTIONS):
        body = text[match.end() : match.end() + _MAX_FUNCTION_CHARS]
        body = body.partition("\n")[0] if "}" in body.partition("\n")[0] else body.partition("\n}")[0]
        if passed := _PASSED_ON.search(body):
            wrappers[match["name"]] = passed["docker"] or ""
    if not wrappers:
        return text
    return _CALL.sub(lambda call: call["before"] + wrappers.get(call["name"], call["name"] + call["blanks"]), text)


def _has_continuation_prompts(text: str) -> bool:
    """Tell whether ``>`` at the beginning of a line is a prompt or the mark of a quote, and not a redirection."""
    lines = text.strip("\n").split("\n")
    if _CONTINUATION_PROMPT.match(lines[0]):
        return True
    continued = [line for before, line in itertools.pairwise(lines) if before.rstrip().endswith("\\")]
    if not continued or not all(map(_CONTINUATION_PROMPT.match, continued)):
        return False
    return (
        len(continued) > 1
        or re.match(r"[ \t]*>[ \t]+-", continued[0]) is not None
        or _SHELL_PROMPT.match(lines[0]) is not None
    )


def split_heredocs(text: str) -> tuple[str, list[str]]:
    """Return a text without its here-documents, and these. One inside the script of ``bash -c '...'`` is that script's."""
    lines = text.split("\n")
    last = {line.strip(): number for number, line in enumerate(lines)}
    of_scripts = {
        text.count("\n", 0, heredoc.start())
        for script in _QUOTED_SCRIPT.finditer(text)
        for heredoc in _HEREDOC.finditer(text, script.start(), script.end())
    }
    kept: list[str] = []
    bodies: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        kept.append(line)
        at += 1
        match = _HEREDOC.search(line)
        if match is None or at - 1 in of_scripts or last.get(match["end"], -1) < at:
            continue
        end = next(number for number in range(at, len(lines)) if lines[number].strip() == match["end"])
        bodies.append("\n".join(lines[at:end]))
        at = end + 1
    return "\n".join(kept), bodies


class _ShellReader:
    def __init__(self, text: str, known: Mapping[str, str]) -> None:
        self.text, self.at, self.known = text, 0, dict(known)
        self.arrays: dict[str, list[ShellWord]] = {}
        self.in_array = self.is_empty_array = False
        self.budget = [MAX_CHARS]  # what variables may still expand to, shared with nested readers
        self.blocks: list[str] = []  # the words that end the blocks around the reader
        self.block_ends = frozenset(_BLOCK_END.findall(text))
        self.doubts: list[tuple[str, str]] = []  # of the command that is read: a name and what is doubtful
        self.name_doubts: dict[str, list[tuple[str, str]]] = {}  # of what a name holds
        self.given = frozenset(known)
        self.continued = -1  # where the text goes on after a backslash at the end of a line
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
                self._end_line()
            elif char == "#" and not self.in_word:
                self._skip_comment()
            elif char == "(" and self.in_word and not self.quoted and self._read_array():
                continue
            elif char == ")" and self.in_array:
                self._end_word()
                self.at += 1
                return self.commands
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

    def _end_line(self) -> None:
        if self.in_array:
            self._end_word()
        else:
            self._end_command("")
        self.at += 1

    def _skip_comment(self) -> None:
        """Skip a comment. It does not end a command that goes on below it, although it would in a shell."""
        end = self.text.find("\n", self.at)
        end = len(self.text) if end < 0 else end
        is_inside = self.at - 200 < self.continued <= self.at and self.text[self.continued : self.at].isspace()
        is_inside = is_inside or self.continued == self.at
        goes_on = self.text[self.at : end].endswith("\\") or is_inside
        self.at = end
        if self.in_array or not self.command.words:
            return
        if goes_on:
            self.at = self.continued = end + 1
        elif match := _NEXT_FLAG.match(self.text, end):
            self.at = match.end()

    def _read_array(self) -> bool:
        """Read ``NAME=(...)`` and ``NAME+=(...)``; false if the bracket is none of an array."""
        match = _ARRAY_ASSIGNMENT.fullmatch("".join(self.parts))
        if match is None or self.in_array:
            return False
        inner = self._open_nested(self.text)
        inner.at, inner.in_array = self.at + 1, True
        inner.read_commands()
        if inner.command.unclosed is not None:
            self.command.unclosed = inner.command.unclosed
        name = match["name"]
        is_conditional = self._is_conditional()
        if not match["more"] and not is_conditional:
            self.arrays[name], self.name_doubts[name] = [], []
        if "done" in self.blocks:
            self._doubt_name(name, "grows in a loop of the script, which is not run")
        elif match["more"] or not is_conditional or not self.arrays.get(name):
            self.arrays.setdefault(name, []).extend(inner.command.words)
            for doubt in inner.doubts:
                self._inherit_doubt(name, doubt)
        if is_conditional:
            self._doubt_name(name, _CONDITIONAL)
        self.parts, self.in_word, self.at = [], False, inner.at
        return True

    def _open_nested(self, text: str) -> _ShellReader:
        """Return a reader of a part, which knows and spends what this one does."""
        inner = _ShellReader("", {})
        inner.text, inner.known = text, self.known
        inner.arrays, inner.budget, inner.name_doubts = self.arrays, self.budget, self.name_doubts
        return inner

    def _is_conditional(self) -> bool:
        """Tell whether what is read is done only under a condition: in a block, or behind a test."""
        before = self.commands[-1] if self.commands else None
        is_tested = before is not None and before.after in ("&&", "||") and before.as_text().startswith(("[", "test "))
        return bool(self.blocks) or is_tested

    def _doubt(self, doubt: tuple[str, str]) -> None:
        if doubt not in self.doubts and len(self.doubts) < _MAX_DOUBTS:
            self.doubts.append(doubt)

    def _doubt_name(self, name: str, why: str) -> None:
        self._inherit_doubt(name, (name, why))

    def _inherit_doubt(self, name: str, doubt: tuple[str, str]) -> None:
        known = self.name_doubts.setdefault(name, [])
        if doubt not in known and len(known) < _MAX_DOUBTS:
            known.append(doubt)

    def _note_use(self, name: str) -> None:
        """Note what is doubtful in a name's value, for the command that uses it."""
        for doubt in self.name_doubts.get(name, ()):
            self._doubt(doubt)

    def _read_backslash(self) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        if following == "\n":
            self.continued = self.at + 2
        elif following:
            self._append_text(escape_references(following))
            self._escape_brace(following)
        self.at += 2

    def _escape_brace(self, char: str) -> None:
        """Keep ``\\${NAME}`` literal: the dollar sign is escaped, and a brace follows it."""
        if char == "$" and self.text.startswith("{", self.at + 2):
            self.parts[-1] = "$${"
            self.at += 1

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
        start, begins_word = self.at, not self.in_word
        self.at += 1
        self._append_text("")
        self.is_empty_array = False
        self.quoted = True
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            if char == "\\":
                following = self.text[self.at + 1 : self.at + 2]
                if following != "\n":
                    self._append_text(escape_references(following if following in '$`"\\' else char + following))
                    self._escape_brace(following)
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
        if self.is_empty_array and begins_word and not any(self.parts):
            self.parts, self.in_word = [], False  # an empty array is no word, not even in quotes

    def _read_dollar(self, *, quoted: bool) -> None:
        text = self.text
        if text[self.at] == "`":
            end = text.find("`", self.at + 1)
            self._add_unresolved(text[self.at : len(text) if end < 0 else end + 1])
        elif text.startswith("$(", self.at):
            self._add_unresolved(text[self.at : _find_closing(text, self.at + 1, "()")])
        elif text.startswith("$'", self.at) and not quoted:
            self._read_ansi_quotes()
        elif match := _PARAMETER_PATTERN.match(text, self.at):
            name = match["bare"] or match["name"]
            self.at = match.end()
            if name not in self.known:
                self._append_text(format_reference(name, match["default"]))
                if (match["how"] or "").endswith("="):
                    self.known[name] = format_reference(name, match["default"])
            else:
                self._append_value(self.known[name], quoted=quoted)
                self._note_use(name)
        elif text.startswith("${", self.at) and self._read_braces(quoted=quoted):
            return
        elif match := _ARGUMENT_DEFAULT.match(text, self.at):
            self.at = match.end()
            self._append_value(escape_references(match["default"]), quoted=quoted)
        elif match := _SPECIAL_PARAMETER.match(text, self.at):
            self._add_unresolved(match[0])
        else:
            self._append_text("$")
            self.at += 1

    def _read_braces(self, *, quoted: bool) -> bool:
        """Read ``${NAME[@]}``, ``${NAME:+WORD}`` and a default with references in it; false for any other braces."""
        end = _find_closing(self.text, self.at + 1, "{}", 4096)
        match = _BRACED.fullmatch(self.text[self.at + 2 : end - 1]) if self.text[end - 1] == "}" else None
        if match is None or (match["how"] is None and match["all"] is None):
            return False
        name, how = match["name"], match["how"] or ""
        self.at = end
        if match["all"] is not None and (name in self.arrays or "-" not in how):
            self._append_array(name)
            return True
        is_set = name in self.known and (self.known[name] != "" or not how.startswith(":"))
        if is_set and not how.endswith("+"):
            self._append_value(self.known[name], quoted=quoted)
        elif is_set == how.endswith("+"):
            is_default = not how.endswith("+") and name not in self.known
            if self._append_word(match["word"], quoted=quoted, name=name if is_default else None):
                return True
        self._note_use(name)
        if name not in self.known:
            self._doubt((name, "not set in the text; the default stands, or nothing"))
        return True

    def _append_array(self, name: str) -> None:
        """Add each word of an array as a word of its own."""
        words = self.arrays.get(name)
        self.is_empty_array = not words
        if words is None:
            self._doubt((name, "not set in the text; the default stands, or nothing"))
            return
        self._note_use(name)
        for position, word in enumerate(words):
            if position:
                self._end_word()
            self._spend(len(word.text) + 1)
            self._append_text(word.text)
            self.quoted = self.quoted or word.quoted
            self.unresolved += word.unknown

    def _append_word(self, text: str, *, quoted: bool, name: str | None) -> bool:
        """Add the word behind ``:-`` or ``:+`` of the variable ``name``; tell whether it could be written as a default."""
        inner = self._open_nested(text)
        inner.doubts = self.doubts
        words = [word for command in inner.read_commands() for word in command.words]
        if words and quoted:
            words = [ShellWord(" ".join(word.text for word in words), tuple(p for word in words for p in word.unknown))]
        if name is not None and len(words) == 1 and not words[0].unknown and not set(words[0].text) & set("{}"):
            self._append_text(format_reference(name, words[0].text))
            return True
        for position, word in enumerate(words):
            if position:
                self._end_word()
            self._append_text(word.text)
            self.unresolved += word.unknown
        return False

    def _spend(self, size: int) -> None:
        """Count what variables expand to. Raises `InvalidInput` where it is more than any script's."""
        self.budget[0] -= size
        if self.budget[0] < 0:
            raise InvalidInput(
                f"its variables expand to more than {MAX_CHARS // 1024} KiB", "paste the line that starts the engine"
            )

    def _append_value(self, value: str, *, quoted: bool) -> None:
        """Add a variable's value. Outside of quotes, blanks in it separate words."""
        self._spend(len(value))
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
        if placeholder := _PLACEHOLDER.match(self.text, self.at):
            self._add_unresolved(placeholder[0])
            return
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
        elif not self.quoted and not self.in_array and (empty := _EMPTY_REFERENCE.fullmatch(word.text)) is not None:
            # outside of quotes it is no word
            self._doubt((empty["name"], "not set in the text; the default stands, or nothing"))
        else:
            self.command.words.append(word)
        self.parts, self.unresolved, self.in_word, self.quoted = [], [], False, False

    def _end_command(self, operator: str) -> None:
        self._end_word()
        self.redirecting = None
        self._follow_blocks([word.text for word in self.command.words])
        if self.command.words or self.command.redirections:
            self.command.after = operator
            self._record_assignments(self.command)
            self.command.doubts, self.doubts = self.doubts, []
            self.commands.append(self.command)
        elif self.commands and operator and not self.commands[-1].after:
            self.commands[-1].after = operator
        self.command = ShellCommand()

    def _follow_blocks(self, words: list[str]) -> None:
        for word in words:
            if self.blocks and word == self.blocks[-1]:
                self.blocks.pop()
            elif (end := _OPENING_WORDS.get(word)) and end in self.block_ends:
                self.blocks.append(end)
            if word not in _LEADING_WORDS:
                return

    def _record_assignments(self, command: ShellCommand) -> None:
        """Record what a line sets for the lines below it. Under a condition, only what is not known yet."""
        words = command.words
        while words and words[0].text in _LEADING_WORDS:
            words = words[1:]
        if words and words[0].text in _DECLARING_WORDS:
            words = [word for word in words[1:] if not word.text.startswith("-")]
        pairs = [_parse_declaration(word) for word in words]
        if not all(pairs):
            return
        for name, more, value in (pair for pair in pairs if pair is not None):
            if self._is_conditional():
                if name not in self.given:
                    self._doubt_name(name, _CONDITIONAL)
                if name in self.known:
                    continue
            elif not more:
                self.name_doubts[name] = []
            self._spend(len(value))
            self.known[name] = self.known.get(name, "") + value if more else value
            for doubt in self.doubts:
                self._inherit_doubt(name, doubt)


def parse_shell(text: str, known: Mapping[str, str] | None = None) -> list[ShellCommand]:
    """Return the commands of a text; variables in ``known``, and those that the text sets before, are replaced."""
    return _ShellReader(text[:MAX_CHARS], known or {}).read_commands()


_PREFIX_WORDS = frozenset({
    "sudo", "exec", "nohup", "time", "env", "timeout", "nice", "ionice", "setsid", "stdbuf", "chrt", "taskset",
    "numactl", "eval",
}) | _LEADING_WORDS  # fmt: skip
_RUNNERS = frozenset({"uv", "poetry", "pdm", "pixi", "conda", "mamba", "hatch"})  # with `run` behind them
_PREFIX_FLAGS_WITH_VALUE = frozenset({
    "-u", "-g", "-n", "-c", "-k", "-s", "-p", "--with", "--from", "--python", "--project", "--directory", "--extra",
    "--group", "--env-file",
})  # fmt: skip
_NUMBER = re.compile(r"[0-9.]+[smhd]?")
_SHELLS = ("bash", "sh", "zsh", "dash")


def skip_prefix(words: Sequence[ShellWord]) -> int:
    """Return where the program stands, behind words such as ``sudo -u user``, ``timeout 60`` and ``NAME=value``."""
    at, before = 0, ""
    while at < len(words):
        text = words[at].text
        program = text.rpartition("/")[2]
        name = text.partition("=")[0]
        if program in _PREFIX_WORDS or program == "uvx":
            before = program
        elif program in _RUNNERS and at + 1 < len(words) and words[at + 1].text == "run":
            before, at = program, at + 1
        elif "=" in text and is_variable_name(name) and not text.startswith("-"):
            pass
        elif before and text.startswith("-"):
            at += text in _PREFIX_FLAGS_WITH_VALUE and program != "env"
        elif not (before and _NUMBER.fullmatch(text)):
            return at
        at += 1
    return at


def parse_script(
    text: str, known: Mapping[str, str], is_wanted: Callable[[Sequence[ShellWord]], bool]
) -> list[ShellCommand]:
    """Return the commands of a pasted text, here-documents left out. If none of them is wanted: the commands of the
    first script inside that has one, which stands in a here-document, in ``$(...)``, or behind ``bash -c``, ``ssh HOST``,
    ``eval`` and ``docker exec``.
    """
    outer, bodies = split_heredocs(clean_pasted_text(text))
    commands = parse_shell(outer, known)
    if any(is_wanted(command.words) for command in commands):
        return commands
    scripts = [(one, script, more) for one in commands for script, more in _list_inner_scripts(one)]
    for outside, script, more in [*scripts, *((None, body, {}) for body in bodies)][:_MAX_SCRIPTS]:
        inner = parse_shell(split_heredocs(script)[0], {**known, **more})
        wanted = next((command for command in inner if is_wanted(command.words)), None)
        if wanted is None:
            continue
        wanted.doubts += [] if outside is None else outside.doubts
        if outside is not None and _runs_in_container(outside):
            wanted.doubts.append(("docker exec", "how the container was started is not in this line"))
        return [*(one for one in commands if one is not outside), *inner]
    return commands


def _runs_in_container(command: ShellCommand) -> bool:
    texts = [word.text for word in command.words[skip_prefix(command.words) :][:3]]
    return bool(texts) and texts[0].rpartition("/")[2] in ("docker", "podman", "nerdctl") and "exec" in texts[1:]


_MAX_SCRIPTS = 50


def _list_inner_scripts(command: ShellCommand) -> list[tuple[str, dict[str, str]]]:
    """Return the scripts that a command gives to a shell, with the variables that it sets for them."""
    found = [piece[2:-1] for word in command.words for piece in word.unknown if piece.startswith("$(")]
    words = command.words[skip_prefix(command.words) :]
    texts = [word.text for word in words]
    known: dict[str, str] = {}
    if _runs_in_container(command):
        for flag, word in zip(texts, words[1:], strict=False):
            if flag in ("-e", "--env") and (pair := parse_assignment(word)):
                known |= dict((pair,))
    if texts and (
        texts[0].rpartition("/")[2] in (*_SHELLS, "ssh", "tmux", "screen", "docker", "podman", "nerdctl", "su")
    ):
        found += [word.text.replace("$${", "\\${") for word in words[1:] if " " in word.text.strip()]
    elif len(texts) == 1 and " " in texts[0]:
        found.append(texts[0])  # eval "$LINE"
    return [(script, known) for script in found]


def list_exports(command: ShellCommand) -> dict[str, str]:
    """Return what an ``export`` sets; empty for any other command."""
    if not command.words or command.words[0].text not in ("export", "declare") or len(command.words) < 2:
        return {}
    pairs = [parse_assignment(word) for word in command.words[1:]]
    return dict(pair for pair in pairs if pair is not None)


def refuse_placeholder(words: Sequence[ShellWord]) -> None:
    """Raise `InvalidInput` for a word in which something is left to write."""
    piece = next((piece for word in words for piece in word.unknown if piece.startswith("<")), None)
    if piece is not None:
        raise InvalidInput(f"{piece} is a placeholder", "write what it stands for into the line")


def parse_assignment(word: ShellWord) -> tuple[str, str] | None:
    """Return name and value of ``NAME=value``, None for any other word."""
    name, equals, value = word.text.partition("=")
    return (name, value) if equals and is_variable_name(name) and not word.unknown else None


def _parse_declaration(word: ShellWord) -> tuple[str, bool, str] | None:
    """Return name, whether the value is added to the one before, and value; None for any other word."""
    name, equals, value = word.text.partition("=")
    more = name.endswith("+")
    name = name.removesuffix("+")
    return (name, more, value) if equals and is_variable_name(name) and not word.unknown else None


def _find_plain_text_end(text: str, start: int) -> int:
    match = re.compile(r"[\s\\'\"$`<>;|&()]").search(text, start + 1)
    return match.start() if match else len(text)


_ROUND_BRACKET = re.compile(r"[()]")
_CURLY_BRACKET = re.compile(r"[{}]")


def _find_closing(text: str, start: int, brackets: str, limit: int | None = None) -> int:
    """Return where the bracket that opens at ``start`` closes, or the end of the text (or of ``limit`` characters)."""
    depth, end = 0, len(text) if limit is None else min(len(text), start + limit)
    for match in (_ROUND_BRACKET if brackets == "()" else _CURLY_BRACKET).finditer(text, start, end):
        depth += 1 if match[0] == brackets[0] else -1
        if depth == 0:
            return match.end()
        if limit is not None and depth > _MAX_BRACES:
            break
    return end


_HARMLESS_COMMAND = re.compile(r"^(set\s+[-+]\S+(\s+pipefail)?|cd\s+(?P<directory>/\S*))$")


@dataclass(frozen=True, slots=True)
class UnwrappedCommand:
    """``words`` are literal, None for what stays a script; ``env``: set before the command, ``directory``: where it changes to."""

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
