"""systemd units around a `docker run`, and Podman quadlets."""

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


QUADLET = r"""
[Unit]
Description=Qwen on the Spark
After=network-online.target
[Container]
Image=docker.io/vllm/vllm-openai:v0.27.0
ContainerName=qwen
AddDevice=nvidia.com/gpu=all
# its weights
Volume=%h/models:/models:ro,Z
PublishPort=8000:8000
Environment=HF_HUB_OFFLINE=1 "NOTE=a b"
Environment=HF_TOKEN=${HF_TOKEN}
ShmSize=16g
Ulimit=memlock=-1
PodmanArgs=--ipc=host --cap-add IPC_LOCK
SecurityLabelDisable=true
Exec=--model /models/q --max-model-len ${CTX} \
  --served-model-name "my qwen"
[Service]
Environment=CTX=8192
Restart=always
[Install]
WantedBy=default.target
"""


def test_a_quadlet_lands_field_by_field() -> None:
    written = import_and_check(QUADLET, "qwen.container")
    profile = written.profile
    assert (written.imported.kind, profile.source) == ("quadlet", "A Podman quadlet: qwen.container")
    assert (profile.name, profile.title, profile.engine) == ("qwen", "Qwen on the Spark", "vllm")
    assert (profile.image, profile.port) == ("docker.io/vllm/vllm-openai:v0.27.0", 8000)
    assert profile.mounts == ("~/models:/models:ro",)
    assert profile.env == (("HF_HUB_OFFLINE", "1"), ("NOTE", "a b"), ("HF_TOKEN", "${HF_TOKEN}"))
    box = profile.container
    assert (box.shm_size, box.ipc, box.ulimits) == ("16g", "host", (("memlock", "-1"),))
    assert box.devices == ("nvidia.com/gpu=all",)
    assert ("cap-add", "IPC_LOCK") in box.options
    argv = get_container_argv(profile)
    assert argv[argv.index("--max-model-len") + 1] == "${CTX:-8192}"
    assert "my qwen" in argv
    assert {"Restart", "SecurityLabelDisable"} <= set(list_keys_of(written, KeyOutcome.UNSUPPORTED))


@pytest.mark.parametrize("image", ["qwen.build", "qwen.image"])
def test_a_quadlet_whose_image_another_unit_makes_is_refused(image: str) -> None:
    with pytest.raises(InvalidInput, match="another unit makes it"):
        import_and_check(f"[Container]\nImage={image}\nExec=serve\n", "x.container")
