"""What an answer with sound holds, by its bytes."""

from __future__ import annotations

import io
import math
import struct
import wave

import pytest

from sparkctl.monitor.engine_probe import AudioClip, read_audio


def build_wav(seconds: float = 1.0, level: int = 8000, width: int = 2, rate: int = 24000) -> bytes:
    memory = io.BytesIO()
    with wave.open(memory, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(width)
        file.setframerate(rate)
        loud = (round(level * math.sin(at / 10)) for at in range(round(seconds * rate)))
        file.writeframes(b"".join(one.to_bytes(width, "little", signed=width > 1) for one in loud))
    return memory.getvalue()


MP3_FRAME = b"\xff\xfb\x90\x00" + bytes(413)  # MPEG 1, layer 3, 128 kbit/s, 44100: 1152 samples in 417 bytes
FLAC = b"fLaC\x00\x00\x00\x22" + bytes(10) + ((24000 << 44) | 48000).to_bytes(8, "big") + bytes(16)
OGG = b"OggS" + bytes(24) + b"OpusHead" + bytes(40) + b"OggS\x00\x04" + (96000).to_bytes(8, "little") + bytes(20)


@pytest.mark.parametrize(
    ("body", "form", "seconds", "is_silent"),
    [
        (build_wav(), "wav", 1.0, False),
        (build_wav(2.5, level=0), "wav", 2.5, True),
        (build_wav(level=20), "wav", 1.0, True),  # noise of a converter is no voice
        (build_wav(0.0), "wav", 0.0, True),
        (build_wav(level=0x400000, width=3), "wav", 1.0, False),
        (build_wav(level=0x40000000, width=4), "wav", 1.0, False),
        (MP3_FRAME * 100, "mp3", 100 * 1152 / 44100, None),
        (b"ID3\x04\x00\x00\x00\x00\x00\x0a" + bytes(10) + MP3_FRAME * 10, "mp3", 10 * 1152 / 44100, None),
        (FLAC, "flac", 2.0, None),
        (OGG, "ogg", 2.0, None),
    ],
)
def test_length_and_silence(body: bytes, form: str, seconds: float, is_silent: bool | None) -> None:
    clip = read_audio(body, content_type="")
    assert clip is not None
    assert (clip.form, clip.is_silent) == (form, is_silent)
    assert clip.seconds == pytest.approx(seconds)


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x7FFFFFFF])
def test_a_streamed_wav_does_not_know_its_length(size: int) -> None:
    whole = build_wav()
    streamed = whole[:40] + struct.pack("<I", size) + whole[44:]
    assert read_audio(streamed, content_type="") == AudioClip("wav", 1.0, is_silent=False)


def test_bare_pcm_by_its_type() -> None:
    samples = build_wav()[44:]
    assert read_audio(samples, "audio/pcm; rate=24000") == AudioClip("pcm", 1.0, is_silent=False)
    assert read_audio(samples, "application/octet-stream") is None
    assert read_audio(bytes(4800), "audio/pcm") == AudioClip("pcm", 0.1, is_silent=True)


@pytest.mark.parametrize(
    "body", [b"", b"<!DOCTYPE html><title>docs</title>", b'{"detail":"no"}', b"RIFF", b"RIFF\x00\x00\x00\x00WAVE", b"\xff\xff\xff\xff", b"ID3"]
)  # fmt: skip
def test_what_is_no_sound(body: bytes) -> None:
    assert read_audio(body, "audio/wav") is None


def test_a_cut_answer_never_raises() -> None:
    for whole in (build_wav(0.05), FLAC, OGG, MP3_FRAME * 2):
        for cut in range(0, len(whole), 7):
            read_audio(whole[:cut], "audio/wav")
