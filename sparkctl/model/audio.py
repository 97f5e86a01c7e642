"""What an answer with sound holds: its form, its length, and whether it is silent. Reads headers; it decodes nothing."""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass

_PCM_RATE = 24000  # samples a second of bare PCM, as the OpenAI speech API has it: 16 bits, one channel
_SILENCE_SHARE = 0.001  # of full scale: no voice is as quiet
_WAV_PCM, _WAV_FLOAT, _WAV_EXTENSIBLE = 1, 3, 0xFFFE
_MP3_RATES = ((11025, 12000, 8000), (), (22050, 24000, 16000), (44100, 48000, 32000))  # by the header's version bits
_MP3_KBITS_1 = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)  # layer 3 of MPEG 1
_MP3_KBITS_2 = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)  # of MPEG 2 and 2.5


@dataclass(frozen=True, slots=True)
class AudioClip:
    """Sound of ``seconds``. ``is_silent``: None where only a decoder could tell."""

    form: str
    seconds: float
    is_silent: bool | None = None


def read_audio(body: bytes, content_type: str = "") -> AudioClip | None:
    """Return what a body holds; None where it is no sound that is known here. Never raises."""
    kind = content_type.partition(";")[0].strip().lower()
    if body[:4] == b"RIFF" and body[8:12] == b"WAVE":
        return _read_wav(body)
    if body[:4] == b"fLaC":
        return _read_flac(body)
    if body[:4] == b"OggS":
        return _read_ogg(body)
    if body[:3] == b"ID3" or (body[:1] == b"\xff" and len(body) > 3 and body[1] & 0xE0 == 0xE0):
        return _read_mp3(body)
    if kind in ("audio/pcm", "audio/l16", "audio/x-raw") and body:
        return AudioClip("pcm", len(body) / 2 / _PCM_RATE, _is_silent(body, 16, is_float=False))
    return None


def _read_wav(body: bytes) -> AudioClip | None:
    """A server that streams does not know the length when it writes the header: the bytes that came count."""
    at, layout = 12, None
    while at + 8 <= len(body):
        name, size = struct.unpack_from("<4sI", body, at)
        content = body[at + 8 : at + 8 + size]
        if name == b"fmt " and len(content) >= 16:
            layout = struct.unpack_from("<HHIIHH", content)
            if layout[0] == _WAV_EXTENSIBLE and len(content) >= 26:
                layout = (struct.unpack_from("<H", content, 24)[0], *layout[1:])
        elif name == b"data" and layout is not None:
            if size == 0:
                content = body[at + 8 :]
            form, channels, rate, _, _, bits = layout
            width = channels * bits // 8
            if form not in (_WAV_PCM, _WAV_FLOAT) or not width or not rate:
                return None
            return AudioClip("wav", len(content) / width / rate, _is_silent(content, bits, is_float=form == _WAV_FLOAT))
        at += 8 + size + size % 2
    return None


def _is_silent(samples: bytes, bits: int, *, is_float: bool) -> bool | None:
    code = {(16, False): "h", (32, False): "i", (32, True): "f"}.get((bits, is_float))
    if code is None:
        quiet = b"\x80" if bits == 8 else b"\0"  # samples of 8 bits have no sign
        return not samples.strip(quiet)
    values = array(code, samples[: len(samples) // (bits // 8) * (bits // 8)])
    full = 1.0 if is_float else float(1 << (bits - 1))
    return not values or max(max(values), -min(values)) < full * _SILENCE_SHARE


def _read_flac(body: bytes) -> AudioClip | None:
    if len(body) < 26:
        return None
    packed = int.from_bytes(body[18:26], "big")
    rate, samples = packed >> 44, packed & ((1 << 36) - 1)
    return AudioClip("flac", samples / rate) if rate else None


def _read_ogg(body: bytes) -> AudioClip | None:
    """The last page says how many samples there are; Opus counts 48,000 a second, whatever its input was."""
    last = body.rfind(b"OggS")
    if len(body) < last + 14:
        return None
    vorbis = body.find(b"\x01vorbis", 0, 512)
    rate = 48000 if vorbis < 0 else int.from_bytes(body[vorbis + 12 : vorbis + 16], "little")
    samples = int.from_bytes(body[last + 6 : last + 14], "little", signed=True)
    return AudioClip("ogg", max(0, samples) / rate) if rate else None


def _read_mp3(body: bytes) -> AudioClip | None:
    at, seconds = 0, 0.0
    if body[:3] == b"ID3" and len(body) >= 10:
        at = 10 + sum((byte & 0x7F) << shift for byte, shift in zip(body[6:10], (21, 14, 7, 0), strict=True))
    while at + 4 <= len(body):
        if body[at] != 0xFF or body[at + 1] & 0xE6 != 0xE2:  # layer 3 alone is MP3
            break
        version, bitrate, rate = (body[at + 1] >> 3) & 3, body[at + 2] >> 4, (body[at + 2] >> 2) & 3
        if version == 1 or bitrate in (0, 15) or rate == 3:
            break
        samples, kbits = (1152, _MP3_KBITS_1) if version == 3 else (576, _MP3_KBITS_2)
        hertz = _MP3_RATES[version][rate]
        seconds += samples / hertz
        at += samples // 8 * kbits[bitrate] * 1000 // hertz + ((body[at + 2] >> 1) & 1)
    return AudioClip("mp3", seconds) if seconds else None
