"""The program that downloads a model on a node: the Hub's real client against a stand-in of the Hub."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import sparkctl.node.download as program
from tests.support.warm_python import WarmPython, start_warm_python
from tests.unit.node.hub_stand_in import COMMIT, HubStandIn, run_hub
from tests.unit.node.test_model_inspection import inspect_model

REPOSITORY = "acme/tiny"
WEIGHTS = os.urandom(3_000_000)
SCRIPT = Path(program.__file__)


# Of the client: all that it loads when it is first used.
CLIENT_MODULES = (
    "sparkctl.node.download", "huggingface_hub.hf_api", "huggingface_hub.file_download", "huggingface_hub.errors",
)  # fmt: skip


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[HubStandIn, str]]:
    one = HubStandIn()
    with run_hub(one) as found:
        yield one, found


@pytest.fixture
def hub(served: tuple[HubStandIn, str]) -> Iterator[HubStandIn]:
    one, _ = served
    one.reset()
    one.files[REPOSITORY] = {
        "config.json": b'{"hidden_size": 8}', "tokenizer.json": b"{}", "chat_template.jinja": b"{{ messages }}",
        "model-00001-of-00002.safetensors": WEIGHTS, "model-00002-of-00002.safetensors": WEIGHTS[::-1],
        "README.md": b"# tiny", "original/consolidated.00.pth": b"x" * 1000, "pytorch_model.bin": WEIGHTS,
    }  # fmt: skip
    yield one
    one.pace.set()


@pytest.fixture
def url(served: tuple[HubStandIn, str], hub: HubStandIn) -> str:
    return served[1]


@pytest.fixture(scope="module")
def warm(served: tuple[HubStandIn, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmPython]:
    """A Python that has loaded the client, for `download`; those that `begin` starts load it themselves."""
    place = tmp_path_factory.mktemp("warm")
    with start_warm_python(CLIENT_MODULES, make_environment(served[1], place), place) as python:
        yield python


WANTED = {
    "config.json", "tokenizer.json", "chat_template.jinja", "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
}  # fmt: skip
PLACED = WANTED | {".sparkctl-source"}


def make_environment(endpoint: str, home: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"], "HOME": str(home), "HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_XET": "1", "HF_HUB_ETAG_TIMEOUT": "5", "HF_HUB_DOWNLOAD_TIMEOUT": "5",
    }  # fmt: skip


def make_words(target: Path, **request: object) -> str:
    return json.dumps({"repo": REPOSITORY, "target": str(target), **request})


def begin(endpoint: str, target: Path, home: Path, script: Path = SCRIPT, **request: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", str(script), make_words(target, **request)],
        env=make_environment(endpoint, home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def download(warm: WarmPython, target: Path, **request: object) -> list[dict[str, Any]]:
    """Run it to its end; the Hub is the one of the fixture."""
    done = warm.run(SCRIPT, [make_words(target, **request)])
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert said, done.stderr
    assert done.returncode == (0 if "done" in said[-1] else 1)
    return said


def list_names(place: Path) -> set[str]:
    return {str(one.relative_to(place)) for one in place.rglob("*") if one.is_file()}


def test_a_model_gets_its_name_when_it_is_whole(hub: HubStandIn, warm: WarmPython, tmp_path: Path) -> None:
    target = tmp_path / "models" / "tiny"
    said = download(warm, target)
    assert said[0] == {"files": 5, "total": 6_000_034, "have": 0, "revision": COMMIT}
    assert said[-1]["done"]
    assert list_names(target) == PLACED
    assert (target / "model-00002-of-00002.safetensors").read_bytes() == WEIGHTS[::-1]
    assert list_names(target.parent) == {f"tiny/{name}" for name in PLACED}, "nothing is left beside it"


def test_a_second_time_fetches_nothing(hub: HubStandIn, warm: WarmPython, tmp_path: Path) -> None:
    target = tmp_path / "tiny"
    download(warm, target)
    before = len(hub.log)
    said = download(warm, target)
    assert said[0]["have"] == said[0]["total"]
    assert not [path for _, path, _ in hub.log[before:] if "resolve" in path or "cdn" in path]


def test_what_is_there_is_kept_and_the_rest_is_added(hub: HubStandIn, warm: WarmPython, tmp_path: Path) -> None:
    target = tmp_path / "tiny"
    target.mkdir()
    (target / "model-00001-of-00002.safetensors").write_bytes(WEIGHTS)
    (target / "config.json").write_bytes(b"{}")  # an older one
    (target / "mine.txt").write_text("kept")
    download(warm, target)
    assert list_names(target) == PLACED | {"mine.txt"}
    assert (target / "config.json").read_bytes() == hub.files[REPOSITORY]["config.json"]
    assert not [path for _, path, _ in hub.log if path.startswith("/cdn") and "00001" in path]


def test_after_a_kill_it_continues(hub: HubStandIn, url: str, warm: WarmPython, tmp_path: Path) -> None:
    target = tmp_path / "tiny"
    hub.pace.clear()
    process = begin(url, target, tmp_path)
    try:
        deadline = time.monotonic() + 30
        while not list((tmp_path / "tiny.sparkctl-part").rglob("*.incomplete")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.3)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert not target.exists()
    hub.pace.set()
    download(warm, target)
    assert list_names(target) == PLACED
    assert (target / "model-00001-of-00002.safetensors").read_bytes() == WEIGHTS


def test_a_connection_that_breaks_is_continued(hub: HubStandIn, warm: WarmPython, tmp_path: Path) -> None:
    data = os.urandom(22_000_000)  # the client writes 10 MB at a time
    hub.files[REPOSITORY] = {"model.safetensors": data}
    hub.cut_after = 15_000_000
    target = tmp_path / "tiny"
    download(warm, target)
    assert (target / "model.safetensors").read_bytes() == data
    gets = [(path, wanted) for verb, path, wanted in hub.log if verb == "GET"]
    assert [wanted for path, wanted in gets if path.startswith("/cdn")] == [None, "bytes=10485760-"]


def test_a_flipped_bit_is_found(hub: HubStandIn, warm: WarmPython, tmp_path: Path) -> None:
    hub.damaged.add("model-00002-of-00002.safetensors")
    target = tmp_path / "tiny"
    said = download(warm, target)
    assert said[-1]["error"] == "damaged"
    assert "model-00002-of-00002.safetensors: its checksum is not its source's" in said[-1]["message"]
    assert not target.exists()


def test_a_damaged_file_does_not_stay_in_the_hubs_cache(hub: HubStandIn, warm: WarmPython, tmp_path: Path) -> None:
    folder, name = tmp_path / "hub" / "models--acme--tiny", "model-00002-of-00002.safetensors"
    hub.damaged.add(name)
    said = download(warm, folder, is_cache=True)
    assert said[-1]["error"] == "damaged"
    assert not os.path.lexists(folder / "snapshots" / COMMIT / name)
    assert not (folder / "blobs" / hashlib.sha256(WEIGHTS[::-1]).hexdigest()).exists()
    assert inspect_model(folder).unfinished, "nobody takes it for whole"
    hub.damaged.clear()
    blob = hashlib.sha256(WEIGHTS).hexdigest()
    (folder / "blobs" / f"{blob}.170dbdbb.incomplete").write_bytes(b"begun under a name of that client's own")
    assert download(warm, folder, is_cache=True)[-1]["done"]
    assert inspect_model(folder).unfinished == 0
    assert (folder / "snapshots" / COMMIT / name).read_bytes() == WEIGHTS[::-1]


def test_what_a_kill_left_unproved_in_the_hubs_cache_counts_as_unfinished(
    hub: HubStandIn, url: str, warm: WarmPython, tmp_path: Path
) -> None:
    hub.files[REPOSITORY] = {"config.json": b"{}", "model.safetensors": bytes(300_000_000)}  # proved for a moment
    folder = tmp_path / "hub" / "models--acme--tiny"
    process = begin(url, folder, tmp_path, is_cache=True)
    try:
        deadline = time.monotonic() + 60
        while not (folder / "snapshots" / COMMIT / "model.safetensors").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert inspect_model(folder).unfinished
    assert download(warm, folder, is_cache=True)[-1]["done"]
    assert inspect_model(folder).unfinished == 0


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        ({"repo": "acme/none"}, "no-repository"),
        ({"revision": "v9"}, "no-revision"),
        ({"include": ["*.gguf"]}, "nothing"),
        ({"kept_free": 1 << 60}, "disk-full"),
    ],
)
def test_what_cannot_be_is_refused(
    hub: HubStandIn, warm: WarmPython, tmp_path: Path, request_: dict[str, object], kind: str
) -> None:
    said = download(warm, tmp_path / "tiny", **request_)
    assert said[-1]["error"] == kind
    assert list(tmp_path.glob("tiny*")) == []


def test_what_is_in_the_way_of_a_model_is_told_before_a_byte_comes(
    hub: HubStandIn, warm: WarmPython, tmp_path: Path
) -> None:
    place = tmp_path / "models"
    (place / "folder" / "config.json").mkdir(parents=True)
    (place / "link").symlink_to("/nowhere/tiny")
    (place / "file").write_text("x")
    for name, words in (
        ("folder", "config.json is in the way"),
        ("link", "link to /nowhere/tiny"),
        ("file", "is a file"),
    ):
        (said,) = download(warm, place / name)
        assert said["error"] == "place"
        assert words in said["message"]
    assert not [path for _, path, _ in hub.log if "resolve" in path]
    assert sorted(one.name for one in place.iterdir()) == ["file", "folder", "link"]


def test_behind_a_link_a_model_is_whole_where_the_link_leads(hub: HubStandIn, warm: WarmPython, tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "tiny").symlink_to("large")
    assert download(warm, tmp_path / "tiny")[-1]["done"]
    assert list_names(tmp_path / "large") == PLACED
    assert (tmp_path / "tiny").is_symlink()
    assert not list(tmp_path.glob("*.sparkctl-part"))


def test_the_hub_says_itself_why_it_refuses(hub: HubStandIn, warm: WarmPython, tmp_path: Path) -> None:
    token = tmp_path / "token"

    def refuse() -> tuple[str, str]:
        token.write_text("hf_old")
        said = download(warm, tmp_path / "tiny", token_file=str(token))[-1]
        return said["error"], said["message"]

    hub.gated.add(REPOSITORY)
    assert refuse() == ("gated", "Access to model acme/tiny is restricted.")
    hub.gated.clear()
    hub.old_tokens.add("hf_old")
    kind, words = refuse()
    assert kind == "bad-token"
    assert "Invalid credentials" in words
    assert "hf_old" not in words
    hub.is_busy = True
    assert refuse()[0] == "too-many"


def test_a_gated_model_needs_the_token_whose_file_is_gone_afterwards(
    hub: HubStandIn, warm: WarmPython, tmp_path: Path
) -> None:
    hub.gated.add(REPOSITORY)
    target = tmp_path / "tiny"
    assert download(warm, target)[-1]["error"] == "gated"
    token = tmp_path / "token"
    token.write_text("hf_wrong\n")
    assert download(warm, target, token_file=str(token))[-1]["error"] == "gated"
    token.write_text("hf_right\n")
    said = download(warm, target, token_file=str(token))
    assert said[-1]["done"]
    assert not token.exists()
    assert "hf_right" not in json.dumps(said)
    assert hub.tokens == {"hf_wrong", "hf_right"}


def test_a_model_by_its_hub_id_goes_into_the_cache(hub: HubStandIn, warm: WarmPython, tmp_path: Path) -> None:
    folder = tmp_path / "hub" / "models--acme--tiny"
    said = download(warm, folder, is_cache=True)
    assert said[-1]["done"]
    assert (folder / "refs" / "main").read_text() == COMMIT
    assert list_names(folder / "snapshots" / COMMIT) == WANTED


def test_what_lies_in_the_cache_counts_as_arrived(hub: HubStandIn, warm: WarmPython, tmp_path: Path) -> None:
    folder = tmp_path / "hub" / "models--acme--tiny"
    download(warm, folder, is_cache=True)
    said = download(warm, folder, is_cache=True)
    assert said[0]["have"] == said[0]["total"] == 6_000_034
    assert said[-1]["done"]


def test_a_size_that_the_hub_does_not_tell_is_not_known(hub: HubStandIn, warm: WarmPython, tmp_path: Path) -> None:
    hub.sizeless.add("model-00001-of-00002.safetensors")
    said = download(warm, tmp_path / "tiny")
    assert said[0]["total"] is None
    assert said[-1]["total"] == 6_000_034, "once it is there its size is known"


def test_nothing_of_another_revision_comes_along(hub: HubStandIn, warm: WarmPython, tmp_path: Path) -> None:
    part = tmp_path / "tiny.sparkctl-part"
    part.mkdir()
    (part / "model-00003-of-00003.safetensors").write_bytes(b"of a revision that was interrupted")
    download(warm, tmp_path / "tiny")
    assert list_names(tmp_path / "tiny") == PLACED
    assert not part.exists()


def test_one_quantization_is_chosen_by_its_name(hub: HubStandIn, warm: WarmPython, tmp_path: Path) -> None:
    hub.files["acme/tiny-GGUF"] = {"tiny-Q4_K_M.gguf": b"a" * 10, "tiny-Q8_0.gguf": b"b" * 10, "README.md": b""}
    target = tmp_path / "gguf"
    said = download(warm, target, repo="acme/tiny-GGUF")
    assert said[-1] == {
        "error": "nothing", "message": "it has several quantizations, name one: tiny-Q4_K_M.gguf, tiny-Q8_0.gguf"
    }  # fmt: skip
    download(warm, target, repo="acme/tiny-GGUF", include=["*Q4_K_M*"])
    assert list_names(target) == {"tiny-Q4_K_M.gguf", ".sparkctl-source"}


@pytest.mark.parametrize(
    ("wanted", "others"),
    [
        (["m-Q4_K_M.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf"], []),
        (["m-Q4_K_M-00001-of-00002.gguf", "m-Q4_K_M-00002-of-00002.gguf", "m-mmproj-f16.gguf"], []),
        (["config.json", "m.safetensors"], ["m-Q4_K_M.gguf", "m-Q8_0.gguf", "consolidated.safetensors"]),
        (
            ["config.json", "pytorch_model.bin", "spiece.model"],
            ["tf_model.h5", "flax_model.msgpack", "model.onnx", "model.onnx_data", "rust_model.ot", "onnx/model.onnx"],
        ),
        (["m-Q4_K_M.gguf"], ["original/m.safetensors"]),
        (["consolidated.safetensors", "params.json", "tekken.json"], ["extra/consolidated.safetensors"]),
        (["m.safetensors"], ["consolidated.00.pth"]),
        (["pytorch_model.bin"], ["consolidated.00.pth"]),
    ],
    ids=[
        "vision",
        "vision and parts",
        "two formats",
        "three frameworks",
        "folder",
        "mistral alone",
        "meta",
        "meta and bin",
    ],
)
def test_without_a_choice_the_files_of_one_engine_are_taken(wanted: list[str], others: list[str]) -> None:
    siblings = [SimpleNamespace(rfilename=name, size=1, lfs=None, blob_id=None) for name in [*others, *wanted]]
    assert [one.name for one in program.choose_files(siblings, [], [])] == wanted
    if len(wanted) > 1:
        left = program.choose_files(siblings, [], [wanted[0]])
        assert [one.name for one in left] == wanted[1:], "what the profile leaves out stays out"


def test_a_file_of_a_web_server_is_continued_and_proved(
    hub: HubStandIn, url: str, warm: WarmPython, tmp_path: Path
) -> None:
    data = os.urandom(12_000_000)
    hub.files["acme/web"] = {"big.gguf": data}
    address, right = f"{url}/cdn/acme/web/big.gguf", hashlib.sha256(data).hexdigest()
    target = tmp_path / "web"
    hub.cut_after = 9_000_000
    assert download(warm, target, url=address, sha256=right)[-1]["error"] == "broken"
    said = download(warm, target, url=address, sha256=right)
    assert said[-1]["done"]
    assert (target / "big.gguf").read_bytes() == data
    assert [wanted for verb, _, wanted in hub.log if verb == "GET"] == [None, "bytes=9000000-"]
    assert list_names(tmp_path / "web") == {"big.gguf", ".sparkctl-source"}
    wrong = download(warm, tmp_path / "wrong", url=address, sha256="0" * 64)
    assert wrong[-1]["error"] == "damaged"
    assert not (tmp_path / "wrong").exists()
    assert download(warm, tmp_path / "x", url=f"{url}/cdn/acme/web/")[-1]["error"] in ("nothing", "broken")


def test_a_model_is_taken_from_another_directory(hub: HubStandIn, warm: WarmPython, tmp_path: Path) -> None:
    nas = tmp_path / "nas" / "hub"
    download(warm, nas / "models--acme--tiny", is_cache=True)
    asked = len(hub.log)
    target = tmp_path / "models" / "tiny"
    said = download(warm, target, directory=str(tmp_path / "nas"))
    assert said[-1]["done"], said
    assert list_names(target) == PLACED
    assert (target / "model-00001-of-00002.safetensors").read_bytes() == WEIGHTS
    folder = tmp_path / "cache" / "models--acme--tiny"
    said = download(warm, folder, directory=str(nas), is_cache=True)
    assert said[-1]["done"], said
    assert (folder / "snapshots" / COMMIT / "model-00001-of-00002.safetensors").read_bytes() == WEIGHTS
    assert len(hub.log) == asked, "the Hub is not asked"
    blob = next(one for one in (nas / "models--acme--tiny" / "blobs").iterdir() if one.stat().st_size == len(WEIGHTS))
    blob.write_bytes(bytes([blob.read_bytes()[0] ^ 1]) + blob.read_bytes()[1:])
    assert download(warm, tmp_path / "again", directory=str(tmp_path / "nas"))[-1]["error"] == "damaged"
    assert download(warm, tmp_path / "z", directory=str(tmp_path / "gone"))[-1]["error"] == "nothing"


@pytest.mark.parametrize(
    ("end", "is_proved"),
    [("whole", True), ("last part first", True), ("damaged", False), ("short", False), ("another", False)],
)
def test_a_file_is_proved_while_it_arrives(tmp_path: Path, end: str, is_proved: bool) -> None:
    one = program.WantedFile("a.safetensors", len(WEIGHTS), hashlib.sha256(WEIGHTS).hexdigest(), None)
    begun, goal = tmp_path / f".cache/begun.{one.sha256}.incomplete", tmp_path / one.name
    begun.parent.mkdir()
    data = bytes([WEIGHTS[0] ^ 1]) + WEIGHTS[1:] if end == "damaged" else WEIGHTS
    with program.GrowingChecksum(one, tmp_path) as checksum, begun.open("wb") as file:
        if end == "last part first":
            file.seek(2_000_000)
            file.write(data[2_000_000:])
            file.seek(0)
        file.write(data[:1_000_000])
        file.flush()
        deadline = time.monotonic() + 20
        while checksum.size < 500_000 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert 500_000 <= checksum.size <= 1_000_000, "read before it is whole, and nothing of a hole"
        file.write(data[1_000_000 : len(data) - (end == "short")])
        file.close()
        begun.replace(goal)
        if end == "another":
            begun.write_bytes(WEIGHTS)
            begun.replace(goal)
        assert checksum.proves(goal) is is_proved


def test_progress_never_goes_back_while_a_file_is_proved(tmp_path: Path) -> None:
    place = tmp_path / "nas" / "models--acme--tiny"
    (place / "snapshots" / COMMIT).mkdir(parents=True)
    (place / "blobs").mkdir()
    size = 64 << 20
    data = bytes(size)
    for name in ("a", "b", "c"):
        blob = place / "blobs" / hashlib.sha256(data + name.encode()).hexdigest()
        blob.write_bytes(data + name.encode())
        (place / "snapshots" / COMMIT / f"{name}.safetensors").symlink_to(f"../../blobs/{blob.name}")
    eager = tmp_path / "download.py"
    eager.write_text(SCRIPT.read_text().replace("REPORT_SECONDS = 1.0", "REPORT_SECONDS = 0.002"))
    words = {"target": str(tmp_path / "tiny"), "directory": str(place)}
    done = subprocess.run(
        [sys.executable, "-u", str(eager), json.dumps(words)], capture_output=True, text=True, timeout=120, check=True
    )
    at = [message["at"] for line in done.stdout.splitlines() if "at" in (message := json.loads(line))]
    assert at
    assert at == sorted(at)
    assert at[-1] < 3 * size + (1 << 20), "a begun file counts by its blocks on the disk"


def test_a_file_that_had_arrived_before_its_name_is_not_asked_for_again(
    hub: HubStandIn, url: str, warm: WarmPython, tmp_path: Path
) -> None:
    hub.files["acme/web"] = {"big.gguf": WEIGHTS}
    target, sha256 = tmp_path / "web", hashlib.sha256(WEIGHTS).hexdigest()
    begun = tmp_path / "web.sparkctl-part" / f"big.gguf.{sha256}.incomplete"
    begun.parent.mkdir()
    begun.write_bytes(WEIGHTS)
    address = f"{url}/cdn/acme/web/big.gguf"
    assert download(warm, target, url=address, sha256=sha256)[-1]["done"]
    assert (target / "big.gguf").read_bytes() == WEIGHTS
    assert [one[0] for one in hub.log if one[1].endswith("big.gguf")] == ["HEAD"]
    (target / "big.gguf").unlink()
    begun.parent.mkdir()
    begun.write_bytes(WEIGHTS + b"more than the server has")  # a shorter file of the same name and checksum: 416
    assert download(warm, target, url=address, sha256=sha256)[-1]["done"]
    assert (target / "big.gguf").read_bytes() == WEIGHTS


def test_of_a_cache_the_revision_comes_that_is_wanted(hub: HubStandIn, warm: WarmPython, tmp_path: Path) -> None:
    cache = tmp_path / "nas" / "models--acme--tiny"
    for commit, text in (("a" * 40, b"new"), ("f" * 40, b"old")):
        (cache / "snapshots" / commit).mkdir(parents=True)
        (cache / "snapshots" / commit / "model.safetensors").write_bytes(text)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("a" * 40)

    def copy(name: str, **more: object) -> tuple[dict[str, Any], Path]:
        target = tmp_path / name
        return download(warm, target, directory=str(tmp_path / "nas"), **more)[-1], target

    said, target = copy("main")
    assert (said["revision"], (target / "model.safetensors").read_bytes()) == ("a" * 40, b"new")
    said, target = copy("pinned", revision="fffffff")
    assert (said["revision"], (target / "model.safetensors").read_bytes()) == ("f" * 40, b"old")
    assert copy("other", revision="v2")[0]["error"] == "nothing"
    (cache / "refs" / "main").unlink()
    assert "no revision main" in copy("unknown")[0]["message"]
    assert hub.log == [], "the Hub is not asked"


def test_what_the_client_says_of_a_connection_is_a_message_and_no_traceback() -> None:
    client = importlib.import_module("huggingface_hub")
    name = next(one for one in ("httpx2", "httpx") if importlib.util.find_spec(one) is not None)
    with (
        pytest.raises(program.DownloadError, match=r"ReadError: .Errno 9. Bad file") as raised,
        program.explain_errors(client, REPOSITORY),
    ):
        raise importlib.import_module(name).ReadError("[Errno 9] Bad file descriptor")
    assert raised.value.kind == "broken"
    xet = importlib.import_module("huggingface_hub.errors").XetDownloadError
    with pytest.raises(program.DownloadError) as raised, program.explain_errors(client, REPOSITORY):
        raise RuntimeError(
            "Data processing error: File reconstruction error: IO Error: No space left on device (os error 28)"
        )
    assert raised.value.kind == "disk-full"
    for error in (xet("no reconstruction"), RuntimeError("CAS service error")):
        with (
            pytest.raises(program.DownloadError, match=r"Error: (no rec|CAS)"),
            program.explain_errors(client, REPOSITORY),
        ):
            raise error
    with pytest.raises(KeyError), program.explain_errors(client, REPOSITORY):
        raise KeyError


CLIENT_WITH_A_DEFECT = """
import time
from types import SimpleNamespace as Some
class HfApi:
    def __init__(self, token): pass
    def model_info(self, repo, revision, files_metadata):
        files = [Some(rfilename=name, size=4, lfs=None, blob_id="ab") for name in ("slow.json", "wrong.json")]
        return Some(siblings=files, sha="c" * 40)
def hf_hub_download(repo, name, **more):
    time.sleep(60 if name == "slow.json" else 0.1)
    raise KeyError(name)
"""


def test_an_error_that_nobody_foresaw_ends_it_at_once_with_a_message(tmp_path: Path) -> None:
    package = tmp_path / "site" / "huggingface_hub"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(CLIENT_WITH_A_DEFECT)
    names = ("GatedRepoError", "RevisionNotFoundError", "RepositoryNotFoundError")
    (package / "utils.py").write_text("".join(f"class {name}(OSError): pass\n" for name in names))
    done = subprocess.run(
        [sys.executable, "-u", str(SCRIPT), json.dumps({"repo": REPOSITORY, "target": str(tmp_path / "tiny")})],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert json.loads(done.stdout.splitlines()[-1]) == {"error": "broken", "message": "KeyError: 'wrong.json'"}
    assert "Traceback" in done.stderr


@pytest.mark.parametrize("is_forced", [False, True])
def test_a_download_waits_for_whoever_loads_weights_unless_it_was_forced(
    hub: HubStandIn, url: str, tmp_path: Path, *, is_forced: bool
) -> None:
    """It stands still as long as it is asked to, goes on by itself, and dies with what holds it."""
    brief = tmp_path / "download.py"
    brief.write_text(SCRIPT.read_text().replace("_HOLD_SECONDS = 15.0", "_HOLD_SECONDS = 1.0"))
    hub.pace.clear()
    running = begin(url, tmp_path / "tiny", tmp_path, script=brief, is_forced=is_forced)
    try:
        while not any("cdn" in one[1] for one in hub.log):
            time.sleep(0.02)
        children = list_children(running.pid)
        assert len(children) == (0 if is_forced else 1)
        if is_forced:
            running.send_signal(signal.SIGUSR1)
            hub.pace.set()
            assert running.wait(60) == 0, "it is neither held nor ended"
            return
        running.send_signal(signal.SIGUSR1)
        hub.pace.set()
        time.sleep(0.5)
        assert read_state(children[0]) == "T"
        out, _ = running.communicate(timeout=60)
        said = [json.loads(line) for line in out.splitlines()]
        assert [one["held"] for one in said if "held" in one] == [True, False]
        assert said[-1]["done"]
        assert running.returncode == 0
    finally:
        hub.pace.set()
        running.kill()
        running.wait()


def test_a_download_waits_while_the_mark_of_the_guard_is_touched(hub: HubStandIn, url: str, tmp_path: Path) -> None:
    """Nobody sends it a signal; when the mark was left, by whichever clock, does not matter."""
    brief, mark = tmp_path / "download.py", tmp_path / "loading"
    text = SCRIPT.read_text().replace("_HOLD_SECONDS = 15.0", "_HOLD_SECONDS = 0.5")
    brief.write_text(text.replace("_MARK_SECONDS = 2.0", "_MARK_SECONDS = 0.1"))
    mark.touch()
    hub.pace.clear()
    running = begin(url, tmp_path / "tiny", tmp_path, script=brief, loading_mark=str(mark))
    try:
        while not any("cdn" in one[1] for one in hub.log):
            time.sleep(0.02)
        (child,) = list_children(running.pid)
        assert read_state(child) != "T", "one that was left earlier says nothing"
        os.utime(mark, (1.0, 1.0))
        ends = time.monotonic() + 20
        while read_state(child) != "T":
            assert time.monotonic() < ends
            time.sleep(0.02)
        hub.pace.set()
        out, _ = running.communicate(timeout=60)
        said = [json.loads(line) for line in out.splitlines()]
        assert [one["held"] for one in said if "held" in one] == [True, False]
        assert said[-1]["done"]
    finally:
        hub.pace.set()
        running.kill()
        running.wait()


def test_a_killed_download_that_waits_leaves_no_process(hub: HubStandIn, url: str, tmp_path: Path) -> None:
    hub.pace.clear()
    running = begin(url, tmp_path / "tiny", tmp_path)
    while not any("cdn" in one[1] for one in hub.log):
        time.sleep(0.02)
    (child,) = list_children(running.pid)
    running.send_signal(signal.SIGUSR1)
    running.kill()
    running.wait()
    hub.pace.set()
    ends = time.monotonic() + 10
    while read_state(child) not in ("", "Z"):
        assert time.monotonic() < ends
        time.sleep(0.02)


def list_children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def read_state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
