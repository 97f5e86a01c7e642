"""A log of `docker build` (BuildKit, the older builder, Podman) that failed names the step; one that succeeded is no failure."""

from __future__ import annotations

import pytest

from sparkctl.logs.diagnosis import LogDiagnoser
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.verdict import FailureCause, Verdict

_PIP = [
    "#7 [3/7] RUN pip install vllm==0.99",
    "#7 1.530 ERROR: No matching distribution found for vllm==0.99",
    '#7 ERROR: process "/bin/sh -c pip install vllm==0.99" did not complete successfully: exit code: 1',
    "------",
    " > [3/7] RUN pip install vllm==0.99:",
    "1.530 ERROR: No matching distribution found for vllm==0.99",
    "------",
    'ERROR: failed to solve: process "/bin/sh -c pip install vllm==0.99" did not complete successfully: exit code: 1',
]
_COMPILER = [
    "#12 [builder 5/9] RUN python setup.py bdist_wheel",
    '#12 612.4 /w/csrc/nvfp4_quant_kernels.cu(42): error: identifier "__nv_fp4x4_e2m1" is undefined',
    "#12 612.5 ninja: build stopped: subcommand failed.",
    '#12 ERROR: process "/bin/bash -o pipefail -c python setup.py bdist_wheel" did not complete successfully: exit code: 1',
]
_KILLED = ['#9 ERROR: process "/bin/sh -c make" did not complete successfully: exit code: 137']
_SOLVE = [
    'ERROR: failed to build: failed to solve: process "/bin/sh -c make" did not complete successfully: exit code: 2'
]
_COPY = [
    "#14 [6/8] COPY model.py /app/",
    'ERROR: failed to build: failed to solve: failed to compute cache key: failed to calculate checksum of ref a::b: "/model.py": not found',
]
_OLDER = [
    "Step 2/5 : RUN pip install flash-attn",
    " ---> Running in 7d8e9f",
    "      ModuleNotFoundError: No module named 'torch'",
    "The command '/bin/sh -c pip install flash-attn' returned a non-zero code: 1",
]
_PODMAN = [
    "STEP 3/5: RUN pip install a==99",
    'Error: building at STEP "RUN pip install a==99": while running runtime: exit status 1',
]
_PODMAN_KILLED = ['Error: building at STEP "RUN make -j20": while running runtime: exit status 137']
_PODMAN_COPY = ['Error: building at STEP "COPY a /": checking on sources: no such file or directory']
_OLDER_KILLED = ["The command '/bin/sh -c make -j20' returned a non-zero code: 137"]
_SUCCESS = [
    "#9 [4/6] RUN make || true",
    "#9 3.1 make: *** [all] Error 2",
    "#9 DONE 4.0s",
    "#10 exporting to image",
    "#10 naming to docker.io/library/vllm-spark:latest done",
    "#10 DONE 12.3s",
]


def _diagnose(lines: list[str]) -> Verdict | None:
    reading = LogDiagnoser()
    for number, text in enumerate(lines, 1):
        reading.feed_line(LogLine(when="", text=text, number=number))
    return reading.build_diagnosis().verdict


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (_PIP, "`pip install vllm==0.99` ended with exit code 1."),
        (_COMPILER, "`python setup.py bdist_wheel` ended with exit code 1."),
        (_KILLED, "`make` ended with exit code 137."),
        (_COPY, '"/model.py": not found.'),
        (_OLDER, "`pip install flash-attn` ended with exit code 1."),
        (_PODMAN, "`pip install a==99` ended with exit code 1."),
        (_SOLVE, "`make` ended with exit code 2."),
        (_PODMAN_KILLED, "`make -j20` ended with exit code 137."),
        (_PODMAN_COPY, 'building at STEP "COPY a /": checking on sources: no such file or directory.'),
        (_OLDER_KILLED, "`make -j20` ended with exit code 137."),
    ],
)
def test_a_build_that_failed_names_its_step(lines: list[str], says: str) -> None:
    verdict = _diagnose(lines)
    assert verdict is not None
    assert verdict.cause is FailureCause.BROKEN_IMAGE
    assert verdict.summary.startswith("The build of an image failed")
    assert verdict.summary.endswith(says)
    assert ("MAX_JOBS" in verdict.remedy) is says.endswith("137.")


def test_a_build_that_succeeded_is_no_failure() -> None:
    assert _diagnose(_SUCCESS) is None


def test_a_full_disk_says_more_than_the_step_that_met_it() -> None:
    verdict = _diagnose(["#7 5.2 cp: error writing '/out/a': No space left on device", *_KILLED])
    assert verdict is not None
    assert verdict.cause is FailureCause.DISK_FULL
