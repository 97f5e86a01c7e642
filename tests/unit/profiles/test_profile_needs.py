"""What a profile needs: the order of starts, and the errors with their place in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.yaml_reader import InvalidFile


def write_profiles(folder: Path, needs: dict[str, str]) -> ProfileLibrary:
    for number, (name, line) in enumerate(needs.items()):
        text = (
            f"schema: 1\nname: {name}\nengine: container\nimage: x/{name}:1.0\nneeds: {line}\nport: {9000 + number}\n"
        )
        (folder / f"{name}.yaml").write_text(text + "start: {health: /health}\n")
    return ProfileLibrary(folder)


def test_needs_come_in_the_order_of_their_start(tmp_path: Path) -> None:
    library = write_profiles(tmp_path, {"top": "[left, right@spark1]", "left": "[low]", "right": "[low]", "low": "[]"})
    found = [(one.profile.name, one.node) for one in library.load_needs(library.load_profile("top"))]
    assert found == [("low", None), ("left", None), ("low", "spark1"), ("right", "spark1")]


@pytest.mark.parametrize(
    ("needs", "what"),
    [
        ({"aa": "[aa]"}, "aa.yaml:5:9: needs: `aa`: a profile cannot need itself: aa → aa"),
        ({"aa": "[bb]", "bb": "[aa]"}, "aa.yaml:5:9: needs: `bb`: a profile cannot need itself: aa → bb → aa"),
        ({"aa": "[bb]", "bb": "[cc]", "cc": "[bb]"}, "a profile cannot need itself: bb → cc → bb"),
        ({"aa": "[orpheus-lm]"}, "aa.yaml:5:9: needs: `orpheus-lm`: no profile is called `orpheus-lm`; did you mean `orpheus-llm`?"),
        ({"aa": "[orpheus-llm, minimax-m27]"}, "aa.yaml:5:22: needs: `minimax-m27`: it is for 2 Sparks; a need runs on one"),
        ({"aa": "['bb x']"}, "is not a profile; write PROFILE or PROFILE@NODE"),
        ({"aa": "[bb@]"}, "is not a profile; write PROFILE or PROFILE@NODE"),
    ],
)  # fmt: skip
def test_what_cannot_be_needed_is_an_error_of_the_file(tmp_path: Path, needs: dict[str, str], what: str) -> None:
    library = write_profiles(tmp_path, needs)
    with pytest.raises(InvalidFile) as refused:
        library.load_profile("aa")
    assert what in refused.value.message
    assert library.load_entry("aa").summary.faults == refused.value.faults, "and the list"


def test_two_on_one_port(tmp_path: Path) -> None:
    library = write_profiles(tmp_path, {"aa": "[bb]", "bb": "[]"})
    (tmp_path / "bb.yaml").write_text((tmp_path / "bb.yaml").read_text().replace("9001", "9000"))
    with pytest.raises(InvalidFile, match="it has port 9000, as aa has"):
        library.load_profile("aa")
    (tmp_path / "aa.yaml").write_text((tmp_path / "aa.yaml").read_text().replace("[bb]", "[bb@spark1]"))
    assert library.load_profile("aa").needs == ("bb@spark1",)


def test_the_shipped_voice_needs_its_model() -> None:
    library = ProfileLibrary(Path("/nonexistent"))
    voice, model = library.load_profile("orpheus-tts"), library.load_profile("orpheus-llm")
    assert [one.profile.name for one in library.load_needs(voice)] == ["orpheus-llm"]
    assert f"127.0.0.1:{model.port}/v1/completions" in dict(voice.env)["ORPHEUS_API_URL"]
    assert model.model.source == "hf:lex-au/Orpheus-3b-FT-Q8_0.gguf"
    assert {voice.start.probe, library.load_profile("kokoro-tts").start.probe} == {"speech"}
