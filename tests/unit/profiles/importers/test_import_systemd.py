"""systemd units around a `docker run`."""

from __future__ import annotations

import pytest

from sparkctl.errors import InvalidInput
from sparkctl.profiles.importers.profile_draft import KeyOutcome
from tests.unit.profiles.importers.import_text import get_container_argv, import_and_check, list_keys_of

UNIT = r"""
[Unit]
Description=A model, 100%%
After=docker.service
[Service]
Environment="CTX=8192" TAG=v1
EnvironmentFile=/etc/model.env
Restart=always
CPUWeight=200
ExecStartPre=-/usr/bin/docker rm -f m1
ExecStart=/usr/bin/docker run --name m1 --gpus all -v %h/models:/models -e HF_TOKEN=${HF_TOKEN} \
    -e "MONEY=5$$" x/vllm:1 vllm serve /models/q --max-model-len ${CTX} --template "a \"b\" 10%%"
ExecStop=/usr/bin/docker stop m1
[Install]
WantedBy=multi-user.target
"""


def test_a_unit_lands_field_by_field() -> None:
    written = import_and_check(UNIT, "model.service")
    profile = written.profile
    assert (profile.name, profile.title, profile.image) == ("m1", "A model, 100%", "x/vllm:1")
    assert profile.mounts == ("~/models:/models",)
    assert profile.env == (("HF_TOKEN", "${HF_TOKEN}"), ("MONEY", "5$"))
    assert get_container_argv(profile)[-4:] == ("--max-model-len", "${CTX:-8192}", "--template", 'a "b" 10%')
    left_out = list_keys_of(written, KeyOutcome.UNSUPPORTED)
    assert {"Restart", "EnvironmentFile /etc/model.env", "CPUWeight"} <= set(left_out)
    assert "set HF_TOKEN in your own environment" in (left_out["EnvironmentFile /etc/model.env"] or "")


def test_a_unit_that_starts_an_engine_itself_is_imported() -> None:
    written = import_and_check(
        "[Unit]\nDescription=Mine\n[Service]\nUser=ai\nEnvironment=HF_HUB_OFFLINE=1\nEnvironmentFile=-/etc/a.env\n"
        "EnvironmentFile=/etc/b.env\nExecStart=/usr/bin/vllm serve org/m \\\n  --port 8001 --served-model-name $NAME\n",
        "x.service",
    )
    assert written.profile.title == "Mine"
    assert {"User", "EnvironmentFile /etc/a.env", "EnvironmentFile /etc/b.env"} <= set(
        list_keys_of(written, KeyOutcome.UNSUPPORTED)
    )
    assert (written.profile.engine, written.profile.model.path, written.profile.port) == ("vllm", "org/m", 8001)
    assert written.profile.env == (("HF_HUB_OFFLINE", "1"),)


def test_a_unit_that_starts_no_engine_is_said() -> None:
    with pytest.raises(InvalidInput, match="starts no `docker run`"):
        import_and_check("[Service]\nExecStart=/usr/bin/nginx -g x\n", "x.service")
