"""What is done to real engines, and what sparkctl has to say of it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sparkctl.logs.line_patterns import is_own_request
from sparkctl.model.launch_plan import REQUEST_MARK
from sparkctl.model.text.sanitize import truncate_text
from tests.tools.nightly import acceptance
from tests.tools.nightly.engines import random_model
from tests.tools.nightly.engines.engine_process import RealEngine, run_engine
from tests.tools.nightly.engines.install import VLLM, Install

READY_WITHIN = 600.0
END_WITHIN = 240.0
SPECULATION = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}
_SPECULATE, _LENGTH = "--speculative-config", "--max-model-len"
_SHOWN = 200  # characters
_ANOTHERS = 3  # times that somebody else asks for the figures
_KV_GIB = "1"
_VLLM_FACTS = {"context_length": "2048", "speculative_method": "ngram", "draft_tokens": "3"}
_LLAMA_FACTS = {"context_length": "2048"}  # of each of the two slots
_DIAGNOSE_WITHIN = 60.0


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that was looked at. ``wrong`` None: as it should be."""

    scene: str
    seconds: float
    seen: str
    wrong: str | None = None


@dataclass(frozen=True, slots=True)
class Break:
    """A start that cannot succeed. ``causes``: those that name it; ``code``: what it ends with."""

    name: str
    causes: tuple[str, ...]
    code: int
    words: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    model: str | None = None
    is_port_taken: bool = False


VLLM_BREAKS = (
    Break("unknown flag", ("unknown-flag",), 2, ("--max-modellen", "2048")),
    Break("speculation: no such method", ("bad-value",), 1, (_SPECULATE, '{"method":"nosuch","num_speculative_tokens":3}')),
    Break("speculation: half a JSON", ("bad-value",), 2, (_SPECULATE, '{"method":"ngram",')),
    Break("utilisation of 2", ("bad-value",), 1, ("--gpu-memory-utilization", "2")),
    Break("context over the KV cache", ("kv-cache-too-small",), 1, (_LENGTH, "4194304"), {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}),
    Break("no such model path", ("model-not-found",), 1, model="/models/is-not-here"),
    Break("weights cut in half", ("truncated-weights",), 1, model="cut"),
    Break("no config.json", ("model-files",), 1, model="bare"),
    Break("port in use", ("port-in-use",), 1, is_port_taken=True),
)  # fmt: skip
LLAMA_BREAKS = (
    Break("unknown flag", ("unknown-flag",), 1, ("--no-such-flag",)),
    Break("no such model file", ("model-not-found",), 1, model="/models/none.gguf"),
    Break("weights cut in half", ("truncated-weights", "model-files"), 1, model="cut"),
    Break("not a GGUF file", ("model-files",), 1, model="junk"),
    Break("port in use", ("port-in-use",), 1, is_port_taken=True),
)


@dataclass(slots=True)
class Bench:
    """Where it all happens: ``logs`` is kept for whoever wants to see why."""

    install: Install
    models: Path
    logs: Path
    serve: float
    rows: list[Row] = field(default_factory=list)

    def note(self, scene: str, seconds: float, seen: str, wrong: str | None = None) -> None:
        """Keep a row, and print it as it comes: the whole takes minutes."""
        row = Row(scene, seconds, seen, wrong)
        self.rows.append(row)
        print(format_row(row), flush=True)

    # vLLM

    def vllm(self) -> None:
        """A start, a time of serving, an engine core that is killed; then starts that fail."""
        with self._vllm("vllm-start", self._port(), speculative=True) as real:
            wrong = real.until_ready(READY_WITHIN)
            self._tell_start("vLLM start", real, wrong)
            if wrong is None:
                self._serve(real)
                self._own_questions("vLLM", real)
                self._diagnose("vLLM, healthy", real, None, "vllm", VLLM, facts=_VLLM_FACTS)
                self._kill_core(real)
        for one in VLLM_BREAKS:
            name = f"vllm-{'-'.join(one.name.replace(':', '').split())}"
            with (
                self._broken(one, "vllm") as (port, weights),
                self._vllm(name, port, weights, one.words, one.env) as real,
            ):
                self._judge(f"vLLM, {one.name}", real, one, "vllm", VLLM)

    def _vllm(
        self, name: str, port: int, weights: str | None = None, words: Sequence[str] = (),
        env: Mapping[str, str] | None = None, *, speculative: bool = False,
    ) -> AbstractContextManager[RealEngine]:  # fmt: skip
        result = [_SPECULATE, json.dumps(SPECULATION)] if speculative else []
        length = [] if _LENGTH in words else [_LENGTH, "2048"]
        command = [
            str(self.install.vllm), "serve", weights or str(self.models / random_model.NAME), "--served-model-name", random_model.NAME,
            "--host", "127.0.0.1", "--port", str(port), "--enforce-eager", *length, *result, *words,
        ]  # fmt: skip
        quiet = {
            "VLLM_CPU_KVCACHE_SPACE": _KV_GIB, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1",
            "PATH": f"{self.install.vllm.parent}{os.pathsep}{os.environ.get('PATH', '')}",
        }  # fmt: skip
        return run_engine(
            name,
            "vllm",
            command=command,
            port=port,
            served=random_model.NAME,
            directory=self.logs,
            env=quiet | dict(env or {}),
        )

    def _serve(self, real: RealEngine) -> None:
        """Acceptance and throughput by counters against the log's own lines."""
        url = f"http://127.0.0.1:{real.port}"
        began = time.monotonic()
        with acceptance.keep_loaded(url, 2):
            found = acceptance.compare_figures(*acceptance.watch_server(url, real.log, self.serve))
        for text in acceptance.format_table(found):
            print(f"    {text}")
        whole, middle = (acceptance.find_worst(found, whole=one) for one in (True, False))
        far = "nothing to compare"
        if whole is not None and middle is not None:
            far = f"at most {100 * whole:.2f} % apart over all of it, {100 * middle:.2f} % in the middle one"
        lengths = [one.theirs for one in found if one.what == "accept length"]
        span = f", accept length {min(lengths):.2f} to {max(lengths):.2f}" if lengths else ""
        wrong = None if acceptance.is_agreement(found) else "acceptance by counters is not the log's"
        seen = f"{acceptance.count_stretches(found)} stretches, {far}{span}"
        self.note("vLLM serving, ngram", time.monotonic() - began, seen, wrong)

    def _kill_core(self, real: RealEngine) -> None:
        began = time.monotonic()
        core = real.child("VLLM::Engine")
        if core is None:
            self.note("vLLM, EngineCore killed", 0.0, "its process was not found", "nothing was killed")
            return
        core.kill()
        code = real.until_end(END_WITHIN)
        one = Break("EngineCore killed", ("worker-lost",), 0)
        self._judge_end("vLLM, EngineCore killed", real, one, code, time.monotonic() - began)
        self._diagnose("vLLM, EngineCore killed", real, one, "vllm", VLLM, ready=True)

    # llama.cpp

    def llama(self) -> None:
        """A start, our own questions in its log, and starts that fail."""
        with self._llama("llama-start", self._port()) as real:
            wrong = real.until_ready(60.0)
            self._tell_start("llama-server start", real, wrong)
            if wrong is None:
                self._own_questions("llama-server", real)
                self._diagnose("llama-server, healthy", real, None, "llamacpp", None, facts=_LLAMA_FACTS)
        for one in LLAMA_BREAKS:
            name = f"llama-{'-'.join(one.name.split())}"
            with (
                self._broken(one, "llamacpp") as (port, weights),
                self._llama(name, port, weights, one.words) as real,
            ):
                self._judge(f"llama-server, {one.name}", real, one, "llamacpp", None)

    def _llama(
        self, name: str, port: int, weights: str | None = None, words: Sequence[str] = ()
    ) -> AbstractContextManager[RealEngine]:
        command = [
            str(self.install.llama_server), "-m", weights or str(self.models / f"{random_model.NAME}.gguf"), "--alias", random_model.NAME,
            "--host", "127.0.0.1", "--port", str(port), "-c", "4096", "-np", "2", "-t", "1", "--poll", "0", "--metrics",
            *words,
        ]  # fmt: skip
        return run_engine(name, "llamacpp", command, port, random_model.NAME, self.logs)

    # both

    def _tell_start(self, scene: str, real: RealEngine, wrong: str | None) -> None:
        ranks = [phase.order for _, phase, _ in real.moves]
        if wrong is None and ranks != sorted(ranks):
            wrong = "a phase was left backwards"
        if wrong is None and real.reader.root_failure is not None:
            wrong = f"a healthy log has a failure: {real.reader.root_failure}"
        if wrong is None and len({phase for _, phase, _ in real.moves}) < 2:
            wrong = "its log told of no phases"
        steps = ", ".join(f"{step or phase} {at:.1f}" for at, phase, step in real.moves)
        self.note(scene, time.monotonic() - real.began, steps or "no phase", wrong)

    def _own_questions(self, caller: str, real: RealEngine) -> None:
        """Of everybody's questions for the figures exactly ours are left out."""
        for _ in range(_ANOTHERS):
            with urllib.request.urlopen(f"http://127.0.0.1:{real.port}/metrics", timeout=10) as answer:
                answer.read()
        time.sleep(0.5)
        lines = real.lines
        ours = [one for one in lines if REQUEST_MARK in one]
        shown = [one for one in lines if not is_own_request(one)]
        others = [one for one in shown if '"GET /metrics HTTP' in one]
        wrong = None
        if any(not is_own_request(one) for one in ours):
            wrong = "one of ours is not known as ours"
        elif len(others) not in (0, _ANOTHERS) or bool(others) != bool(ours):
            wrong = f"of {_ANOTHERS} questions of somebody else {len(others)} are shown"
        seen = f"{len(ours)} lines of ours hidden, {len(others)} of another client shown, of {len(lines)}"
        self.note(f"{caller}, own questions", 0.0, seen, wrong)

    def _judge(self, scene: str, real: RealEngine, one: Break, engine: str, version: str | None) -> None:
        code = real.until_end(END_WITHIN)
        self._judge_end(scene, real, one, code, time.monotonic() - real.began)
        self._diagnose(scene, real, one, engine, version)

    def _judge_end(self, scene: str, real: RealEngine, one: Break, code: int | None, seconds: float) -> None:
        root = real.reader.root_failure
        cause = "nothing" if root is None or root.failure is None else str(root.failure.cause)
        where = "" if root is None or root.failure is None else f", line {root.number}: {root.failure.summary}"
        wrong = None
        if cause not in one.causes:
            wrong = f"should be {' or '.join(one.causes)}"
        elif code != one.code:
            wrong = f"exit code {one.code} was expected"
        self.note(scene, seconds, f"exit {code}; {cause}{where}", wrong)

    def _diagnose(
        self, scene: str, real: RealEngine, one: Break | None, engine: str, version: str | None, ready: bool | None = None,
        facts: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Hold `sparkctl diagnose` on the saved log against the same truth."""
        began = time.monotonic()
        real.read()
        ran = subprocess.run(
            [sys.executable, "-m", "sparkctl", "diagnose", str(real.log), "--json"],
            capture_output=True, text=True, timeout=_DIAGNOSE_WITHIN, check=False,
        )  # fmt: skip
        seconds = time.monotonic() - began
        if ran.returncode:
            said = ran.stderr.strip().splitlines()[-1:] or ["nothing"]
            self.note(f"{scene}: diagnose", seconds, said[0], f"it ended with {ran.returncode}")
            return
        document = json.loads(ran.stdout)
        verdict = document.get("verdict")
        cause = None if verdict is None else verdict["cause"]
        wanted = (None,) if one is None else one.causes
        was_ready = (one is None) if ready is None else ready
        wrong = None
        if cause not in wanted:
            wrong = f"verdict {cause}, and it was {' or '.join(map(str, wanted))}"
        elif document.get("engine") != engine or (
            version is not None and document.get("version") not in (version, None)
        ):
            wrong = f"it is {engine} {version or ''}"
        elif bool(document.get("ready")) != was_ready:
            wrong = f"ready was {was_ready}"
        known = document.get("facts") or {}
        if wrong is None and (lacking := {key: one for key, one in (facts or {}).items() if known.get(key) != one}):
            wrong = f"these facts were true: {lacking}"
        words = ", ".join(f"{key} {value}" for key, value in known.items() if value is not None)
        seen = f"{document.get('engine')} {document.get('version')}, {document.get('phase')}, {cause}; {words or 'no facts'}"
        self.note(f"{scene}: diagnose", seconds, seen, wrong)

    @contextmanager
    def _broken(self, one: Break, engine: str) -> Iterator[tuple[int, str | None]]:
        """Make what such a start needs; yield its port and its model, None for the good one."""
        if one.is_port_taken:
            with socket.create_server(("127.0.0.1", 0)) as taken:
                yield taken.getsockname()[1], None
            return
        yield self._port(), self._spoilt(one.model, engine)

    def _spoilt(self, kind: str | None, engine: str) -> str | None:
        if kind not in ("cut", "bare", "junk"):
            return kind
        if engine == "llamacpp":
            path = self.models / f"{kind}.gguf"
            whole = (self.models / f"{random_model.NAME}.gguf").read_bytes()
            path.write_bytes(whole[: len(whole) // 2] if kind == "cut" else b"no model " * 1000)
            return str(path)
        directory = self.models / kind
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(self.models / random_model.NAME, directory)
        if kind == "cut":
            weights = directory / "model.safetensors"
            weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
        else:
            (directory / "config.json").unlink()
        return str(directory)

    @staticmethod
    def _port() -> int:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
        return port


def format_row(row: Row) -> str:
    """Return a row as it is printed."""
    verdict = "ok   " if row.wrong is None else "WRONG"
    why = "" if row.wrong is None else f"   <- {row.wrong}"
    return f"{verdict} {row.seconds:6.1f} s  {row.scene:48} {truncate_text(row.seen, _SHOWN)}{why}"
