"""Failure rules for what keeps a container from starting, as Docker, compose, Kubernetes, the NVIDIA container toolkit and the
driver's own tools report it.
"""

from __future__ import annotations

from sparkctl.engines.base import FailureWeight
from sparkctl.engines.log_rules import EXCEPTION_PREFIX, MatchGroups, failure_rule
from sparkctl.model.verdict import FailureCause

GPUS_REMEDY = (
    "Set container.gpus: all; on the node, nvidia-smi and the NVIDIA container toolkit have to work. After a driver update "
    "reboot the node."
)


def _format_cuda_version(groups: MatchGroups) -> MatchGroups:
    """Return CUDA's version as people write it, if the line gives the driver's number: 12080 is 12.8."""
    number = int(groups.get("found", 0))
    return {"found": f"{number // 1000}.{number % 1000 // 10}"} if number else {}


DOCKER_FAILURES = (
    failure_rule(
        r"[Dd]river/library version mismatch",
        FailureCause.GPU_RUNTIME_MISSING,
        "The node's NVIDIA driver was updated, and the older one still runs: its library and its kernel module differ.",
        "Reboot the node.",
        needle="river/library version mismatch",
    ),
    failure_rule(
        r"invoking the NVIDIA Container Runtime Hook directly",
        FailureCause.GPU_RUNTIME_MISSING,
        "The node's NVIDIA container runtime is set to the mode cdi, and takes no --gpus.",
        "On the node: sudo nvidia-ctk config --in-place --set nvidia-container-runtime.mode=auto, then restart Docker. Or start the "
        "container with --runtime=nvidia in place of --gpus.",
        needle="invoking the NVIDIA Container Runtime Hook directly",
        on="container.gpus",
        fatal=True,
    ),
    failure_rule(
        r"nvidia-container-(?:cli|runtime).*?(?P<what>load library failed: libnvidia-ml|nvml error: driver not loaded"
        r"|libnvidia-ml\.so[\d.]*: cannot open shared object file)",
        FailureCause.GPU_RUNTIME_MISSING,
        "Docker's NVIDIA runtime found no driver on the node ({what}).",
        "`nvidia-smi` on the node has to work first: install the driver, or reboot after an update. Where it works, Docker itself may "
        "be from snap (snap list docker), which does not see the node's libraries: install Docker from a package instead.",
        needle="nvidia-container-",
        fatal=True,
    ),
    failure_rule(
        r"unresolvable CDI devices? (?P<device>\S+)|failed to inject CDI devices|no known GPU vendor found",
        FailureCause.GPU_RUNTIME_MISSING,
        "Docker finds no description (CDI) of the node's GPU[ ({device})].",
        "On the node: sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, then restart Docker. `nvidia-ctk cdi list` shows what "
        "there is.",
        needle=("unresolvable CDI device", "failed to inject CDI devices", "no known GPU vendor found"),
        fatal=True,
    ),
    failure_rule(
        r"nvidia-container-(?:cli|runtime)[^:]{0,40}: (?P<what>(?:mount|detection|ldcache|device|container) error.{0,160}"
        r"|requirement error: (?!unsatisfied condition).{0,160}|initialization error.{0,160})"
        r"|executing hook .{0,80}nvidia-container-(?P<hook>toolkit|runtime-hook)"
        r"|custom device \"/dev/nvidia(?P<device>[\w-]*)\"",
        FailureCause.GPU_RUNTIME_MISSING,
        "Docker's NVIDIA runtime could not give the container a GPU[: {what}][: its {hook} failed][: there is no /dev/nvidia{device}].",
        "`nvidia-smi` on the node shows whether the driver works. If it does, update nvidia-container-toolkit there and restart Docker.",
        needle=("nvidia-container-", 'custom device "/dev/nvidia'),
        fatal=True,
    ),
    failure_rule(
        r"could not select device driver|[Uu]nknown (?:or invalid )?runtime (?:name|specified):? nvidia"
        r"|nvidia-container-(?:cli|runtime).*(?:no such file or directory|command not found|not found in \$PATH)"
        r"|unable to retrieve OCI runtime error.{0,300}: exec: \"nvidia-container-runtime\"",
        FailureCause.GPU_RUNTIME_MISSING,
        "Docker could not give the container a GPU: the NVIDIA container toolkit is missing or not set up.",
        "On the node: install nvidia-container-toolkit, then sudo nvidia-ctk runtime configure --runtime=docker and "
        "restart Docker. `nvidia-smi` there shows whether the driver itself works.",
        needle=("could not select device driver", "nvidia-container-", "runtime name", "runtime specified"),
        fatal=True,
    ),
    failure_rule(
        r"[Ii]nsufficient nvidia\.com/gpu|^nvidia\.com/gpu\. (?:preemption|no new claims)",
        FailureCause.GPU_RUNTIME_MISSING,
        "Kubernetes has no free GPU on any node: it is taken, or the NVIDIA device plugin does not run.",
        "kubectl describe node shows nvidia.com/gpu under Allocatable and who uses it; a Spark has one. Without it, install the device "
        "plugin (or the GPU operator).",
        needle=("nsufficient nvidia.com/gpu", "nvidia.com/gpu. "),
        at_any_level=True,
    ),
    failure_rule(
        r"\b(?P<what>container has runAsNonRoot and image will run as root)",
        FailureCause.PERMISSION,
        "Kubernetes does not start it: {what}.",
        "Give the pod a securityContext with runAsUser, or an image that has a user of its own.",
        needle="container has runAsNonRoot",
        at_any_level=True,
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"^[Rr]eason: {1,20}OOMKilled|(?<!\.)\bOOMKilled\b(?![\"']? ?[:=])",
        FailureCause.HOST_OOM_KILL,
        "The kernel killed it for memory, by the word of Kubernetes (OOMKilled): it reached its limit, or the node had none left.",
        "Raise or remove resources.limits.memory of the pod; `dmesg` on the node tells whether the node itself ran out.",
        needle="OOMKilled",
        at_any_level=True,
    ),
    failure_rule(
        r"failed (?P<which>startup|liveness) probe, will be restarted",
        FailureCause.TIMED_OUT,
        "Kubernetes ended it: its {which} probe had no answer in time.",
        "Loading a model takes minutes: raise failureThreshold times periodSeconds of the startupProbe above the time that a start takes.",
        needle=" probe, will be restarted",
        at_any_level=True,
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"\b(?P<nodes>\d{1,5}/\d{1,5} nodes are available: .{1,200})|(?P<mount>MountVolume\.\w{1,20} failed for volume .{1,200}"
        r"|Unable to attach or mount volumes: .{1,200})|^Error: (?P<part>(?:secret|configmap) \"[^\"]{1,200}\" not found)"
        r"|\b(?P<kind>CreateContainer(?:Config)?Error|RunContainerError)\b",
        FailureCause.DOCKER_REFUSED,
        "Kubernetes does not start it[: {nodes}][: {mount}][: {part}][: {kind}].",
        "kubectl describe pod names what is missing: a node with room, a volume, a secret.",
        needle=(
            " nodes are available: ",
            "MountVolume.",
            "Unable to attach or mount volumes",
            '" not found',
            "CreateContainer",
            "RunContainerError",
        ),
        at_any_level=True,
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"^slurmstepd: error: \*{3} (?P<what>(?:JOB|STEP) \S{1,40} ON \S{1,80} CANCELLED AT \S{1,30}(?: DUE TO (?P<why>[A-Z ]{1,40}))?)",
        FailureCause.STOPPED_BY_OTHERS,
        "Slurm ended the job[: {why}] ({what}).",
        "TIME LIMIT: ask for a longer --time. Else somebody cancelled it (scancel), or another job needed the node.",
        needle="slurmstepd: error: *** ",
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"^UnicodeDecodeError: 'utf-8' codec can't decode byte 0x\w\w.{0,80}: read by \w{0,20}nvml",
        FailureCause.GPU_RUNTIME_MISSING,
        "NVIDIA's library for the GPU's state (NVML) gave the GPU a name that is not valid text: driver and library do not fit together.",
        "Run nvidia-smi on the node and in the container. If it works in both, take a newer image, whose nvidia-ml-py is newer. Under WSL 2 "
        "driver 555 had this fault: update the driver on Windows.",
        needle=": read by ",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"^(?:.{0,40}: )?NVIDIA-SMI has failed because (?P<why>.{0,80}?)(?:\.|$)"
        r"|Failed to initialize NVML: (?P<nvml>(?!Driver/library version|Insufficient Permissions)[\w ]{1,40})"
        r"|(?:^|[\s.])NVMLError_(?P<class>(?!NotSupported)\w{1,40})\b"
        r"|Unable to determine the device handle for GPU.{0,40}: (?P<handle>(?:GPU is lost|Unknown Error))|^GPU is lost\b",
        FailureCause.GPU_RUNTIME_MISSING,
        "The NVIDIA driver does not answer[: {why}][ (NVML: {nvml})][ (NVML: {class})][: {handle}].",
        "`nvidia-smi` on the node: if it works there, start the container again (systemd's daemon-reload takes the GPU from a running "
        "one), with container.gpus: all. If it fails there, too, reboot the node and look at `dmesg`.",
        needle=(
            *("NVIDIA-SMI has failed", "Failed to initialize NVML: ", "NVMLError_"),
            *("Unable to determine the device handle", "GPU is lost"),
        ),
        on="container.gpus",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"(?P<what>lib(?:cuda|nvidia-ml)\.so(?:\.1)?: cannot open shared object file|libcuda\.so cannot found)"
        rf"|{EXCEPTION_PREFIX}(?P<said>.{{0,160}}torch\.cuda\.is_available\(\) is False|Device string must not be empty"
        r"|0 active drivers|.{0,200}Error 802: system not yet initialized|Torch is not able to use GPU"
        r"|(?:.{0,80}\b)?(?:[Cc]uda|CUDA|GPU) is not available\b|(?!Current node has)(?:.{0,80}\b)?[Nn]o (?:NVIDIA |CUDA )?GPUs? (?:is "
        r"|are |was |were )?(?:available|found|detected)\b"
        r"|.{0,80}\bdriver on your system is not loaded|.{0,80}\bdriver initialization failed, you might not have"
        r"|.{0,80}\bno (?:ROCm-capable device is detected|CUDA(?:-capable)? devices? (?:is |are |was |were )?(?:available|found|detected))"
        r"|.{0,80}(?:AMDSMI_STATUS_(?:DRIVER_NOT_LOADED|NO_DRV|INIT_ERROR)|ZE_RESULT_ERROR_UNINITIALIZED"
        r"|PyTorch Neuron Runtime could not be initialized"
        r"|nrt_init failed|TPU initialization failed|synStatus=\d{1,3} .{0,40}[Dd]evice acquire failed)"
        r"|.{0,80}device >= 0 && device < num_gpus)",
        FailureCause.GPU_RUNTIME_MISSING,
        "The container sees no GPU: the driver's library or device is not in it[ ({what})][ ({said})].",
        GPUS_REMEDY,
        needle=(
            *("libcuda.so", "libnvidia-ml.so", "torch.cuda.is_available() is False"),
            *("Device string must not be empty", "0 active drivers", "Error 802", "Torch is not able to use GPU"),
            *("device < num_gpus", " is not available", "uda is not available", "o GPU", "o NVIDIA GPU"),
            *("o CUDA GPU", "driver on your system is not loaded", "driver initialization failed, you might"),
            *("ROCm-capable device", "no CUDA", "AMDSMI_STATUS_", "ZE_RESULT_ERROR_UNINITIALIZED"),
            *("Neuron Runtime could not be initialized", "nrt_init failed", "TPU initialization failed"),
            "evice acquire failed",
        ),
        on="container.gpus",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:No (?:CUDA|HIP|ROCm|XPU|NPU|MUSA) (?:GPUs|devices) are available|Found no NVIDIA driver on your system"
        r"|Failed to infer device type|no CUDA-capable device is detected|NVML Shared Library Not Found)",
        FailureCause.GPU_RUNTIME_MISSING,
        "The container sees no GPU.",
        GPUS_REMEDY,
        needle=(
            "Failed to infer device type",
            "Found no NVIDIA driver on your system",
            "NVML Shared Library Not Found",
            *("GPUs are available", "devices are available"),
            "no CUDA-capable device is detected",
        ),
        on="container.gpus",
    ),
    failure_rule(
        r"^(?:WARNING: )?The NVIDIA Driver was not detected",
        FailureCause.GPU_RUNTIME_MISSING,
        "The container sees no GPU.",
        GPUS_REMEDY,
        needle="The NVIDIA Driver was not detected",
        on="container.gpus",
        at_any_level=True,
    ),
    failure_rule(
        r"NVIDIA driver on your system is too old(?: \(found version (?P<found>\d+)\))?|CUDA driver version is insufficient"
        r"|requirement error: unsatisfied condition: (?P<wants>[^,\s]+)|provided PTX was compiled with an unsupported toolchain"
        r"|cudaErrorUnsupportedPtxVersion|cudaErrorInsufficientDriver|CUDA initialization failure with error: 3[56]\b"
        r"|^ERROR: This container was built for NVIDIA Driver Release (?P<release>[\d.]+\d)(?:.*version (?P<has>[\d.]*\d) was)?",
        FailureCause.DRIVER_MISMATCH,
        "The node's NVIDIA driver is too old for this image[ (it needs {wants})][ (the driver supports CUDA {found})]"
        "[ (it needs {release})][: the node has {has}].",
        "Update the node (DGX OS), or take an image built for its CUDA version.",
        worked_out=_format_cuda_version,
        needle=(
            *("CUDA driver version is insufficient", "CUDA initialization failure with error: "),
            *("ERROR: This container was built for NVIDIA Driver Release", "NVIDIA driver on your system is too old"),
            *("cudaErrorInsufficientDriver", "cudaErrorUnsupportedPtxVersion"),
            *("provided PTX was compiled with an unsupported toolchain", "requirement error: unsatisfied condition:"),
        ),
        on="image",
    ),
    failure_rule(
        r"system has unsupported display driver|forward compatibility was attempt|^.{0,120}\bError 80[34]\b"
        r"|cudaError(?:SystemDriverMismatch|CompatNotSupportedOnDevice)|CUDA_ERROR_(?:SYSTEM_DRIVER_MISMATCH|COMPAT_NOT_SUPPORTED)"
        r"|CUDA initialization failure with error: 80[34]\b",
        FailureCause.DRIVER_MISMATCH,
        "The container's CUDA library and the node's NVIDIA driver do not belong together: most often the image's forward-compatibility "
        "library is loaded in place of the driver's own.",
        "Give the container the driver's own library: start it with container.gpus: all (--gpus) and not with --runtime nvidia, and take "
        "the directory cuda/compat out of env.LD_LIBRARY_PATH. After a driver update reboot the node. If it is the same then, the driver "
        "is too old: update the node (DGX OS), or take an image built for its CUDA version.",
        needle=(
            *("CUDA initialization failure with error: ", "CUDA_ERROR_COMPAT_NOT_SUPPORTED"),
            *("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "Error 80", "cudaErrorCompatNotSupported"),
            *("cudaErrorSystemDriverMismatch", "forward compatibility was attempt"),
            "system has unsupported display driver",
        ),
        on="env.LD_LIBRARY_PATH",
    ),
    failure_rule(
        r"[Ee]xec format error\"?(?:: unknown|: '[^']{1,200}')?\.?$|no matching manifest for (?P<platform>\S+)"
        r"|does not provide the specified platform \((?P<wanted>[^)]{1,40})\)|no match for platform in manifest",
        FailureCause.IMAGE_ARCH,
        "The image holds programs of another processor: a Spark is arm64[, and there is none for {platform}][, and there is none for {wanted}].",
        "Take an image built for linux/arm64.",
        needle=(
            *("no matching manifest for", "xec format error", "does not provide the specified platform"),
            "no match for platform in manifest",
        ),
        on="image",
        fatal=True,
    ),
    failure_rule(
        r"requested image's platform \((?P<its>[^)]*)\) does not match the detected host platform"
        r"|image platform \((?P<other>[^)]*)\) does not match the expected platform",
        FailureCause.IMAGE_ARCH,
        "The image was built for [{its}][{other}]: a Spark is linux/arm64.",
        "Take an image built for linux/arm64.",
        needle=("requested image's platform", "image platform ("),
        on="image",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"(?:Get|Head) \"?https?://(?P<registry>[^/\"\s]+)/v\d/[^\"]*\"?: (?:(?P<why>unauthorized|denied|net/http: .*"
        r"|context deadline exceeded|dial tcp.*|EOF|TLS .*|x509: .*|proxyconnect.*))"
        r"|(?:^|daemon: )(?P<said>unauthorized(?=: <html)|unauthorized: (?:authentication|access|incorrect).*)"
        r"|daemon: (?P<other>net/http: (?:request canceled|TLS handshake timeout).*)",
        FailureCause.IMAGE_MISSING,
        "The image could not be pulled[ from {registry}][: {why}][: {said}][: {other}].",
        "Log in to its registry on the node (docker login) if it asks for that; otherwise check the node's network connection. "
        "Then pull again.",
        needle=('Get "http', "Get http", 'Head "http', "Head http", "unauthorized:", "net/http: "),
        on="image",
    ),
    failure_rule(
        r"toomanyrequests: (?P<why>.{1,120})|You have reached your (?:unauthenticated )?pull rate limit",
        FailureCause.IMAGE_MISSING,
        "The registry's pull limit for this address is used up[: {why}].",
        "Log in to it on the node (docker login), which allows more, or wait some hours.",
        needle=("toomanyrequests: ", "pull rate limit"),
        on="image",
        fatal=True,
    ),
    failure_rule(  # another event tells why
        r"Back-off pulling image \"(?P<pod>[^\"]{1,200})\"|\bErrImagePull\b|\bImagePullBackOff\b",
        FailureCause.IMAGE_MISSING,
        "The image[ {pod}] could not be pulled.",
        "kubectl describe pod names the reason: correct the image's name and tag, or give the pod the registry's password (imagePullSecrets).",
        needle=("Back-off pulling image", "ErrImagePull", "ImagePullBackOff"),
        on="image",
        weight=FailureWeight.LIKELY,
        at_any_level=True,
    ),
    failure_rule(
        r"failed to solve: (?P<base>\S{1,200}): (?:failed to (?:resolve|authorize|fetch)|pull access|not found|unexpected status)"
        r"|Failed to pull image \"(?P<pod>[^\"]{1,200})\"(?:.{0,300}: (?P<absent>not found))?"
        r"|error pulling image configuration: (?P<why>.{1,120})"
        r"|(?:Error response from daemon|httpReadSeeker|failed to copy).{0,120}?(?P<status>error parsing HTTP [45]\d\d|denied: \w+$"
        r"|unexpected status code \S{1,200}: [45]\d\d|received unexpected HTTP status: [45]\d\d)",
        FailureCause.IMAGE_MISSING,
        "The image[ {base}][ {pod}] could not be pulled[: {absent}][: {why}][: {status}].",
        "Correct its name and tag, or log in to its registry on the node (docker login); otherwise check the node's network connection. "
        "Then pull again.",
        needle=(
            *("failed to solve: ", "Failed to pull image", "error pulling image configuration"),
            *("Error response from daemon", "httpReadSeeker", "failed to copy"),
        ),
        on="image",
        at_any_level=True,
    ),
    failure_rule(
        r"bind source path does not exist: (?P<path>\S*(?:model|huggingface|hf|weights|gguf)\S*?)\.?(?:\s|$)",
        FailureCause.MODEL_NOT_FOUND,
        "There is no {path} on the node, which the container mounts.",
        "Put the model there, or correct the mount.",
        needle="bind source path",
        on="mounts",
    ),
    failure_rule(
        r"bind source path does not exist: (?P<path>\S+?)\.?(?:\s|$)",
        FailureCause.BAD_VALUE,
        "There is no {path} on the node, which the container mounts.",
        "Put that directory or file on the node, or correct the mount.",
        needle="bind source path",
        on="mounts",
    ),
    failure_rule(
        r"exec: \\?\"(?P<name>[^\"\\]+)\\?\": permission denied",
        FailureCause.PERMISSION,
        "The container has no permission to execute {name}.",
        "chmod +x it (on the node, if it is mounted; else when the image is built), or correct command.",
        needle="permission denied",
        on="command",
        fatal=True,
    ),
    failure_rule(
        r"exec: \\?\"nvidia-smi\\?\": executable file not found|^(?:\S*/)?(?:ba|da)?sh: (?:line )?(?:\d+: )?nvidia-smi: (?:command )?not found",
        FailureCause.GPU_RUNTIME_MISSING,
        "The container sees no GPU: nvidia-smi, which the NVIDIA container toolkit mounts, is not in it.",
        GPUS_REMEDY,
        needle="nvidia-smi",
        on="container.gpus",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"exec: \\?\"(?P<name>[^\"\\]+)\\?\": (?:executable file not found in \$PATH|stat \S+: no such file)"
        r"|^(?:\S*/)?(?:ba|da)?sh: (?:line )?(?:\d+: )?(?:exec: )?(?P<known>(?:\S*/)?(?:vllm|sglang|python3?"
        r"|trtllm-\w[\w-]*|llama-server|ollama|mpirun|ray)): (?:command )?not found$",
        FailureCause.BAD_VALUE,
        "The image has no program [{name}][{known}].",
        "Correct command (or container.entrypoint), or take an image that has it.",
        needle=(": no such file", "not found"),
        on="command",
    ),
    failure_rule(
        r"^\S{0,200}: line \d{1,6}: (?P<name>[A-Za-z_]\w{0,80}): (?:unbound variable|parameter (?:null or )?not set)\W*$",
        FailureCause.BAD_VALUE,
        "The script that starts the program needs {name}, which is not set.",
        "Set env.{name}.",
        needle=(": unbound variable", " not set"),
        on="env.{name}",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"[Cc]onflict\. The container name \"/?(?P<name>[^\"]+)\" is already in use",
        FailureCause.DOCKER_REFUSED,
        "There is a container named {name} already.",
        "If nobody needs it: docker rm {name} on the node (docker rm -f, if it still runs). Else choose another name.",
        needle="is already in use",
    ),
    failure_rule(
        r"(?:[Nn]o such image: (?P<name>\S+)|manifest for (?P<tag>\S+) not found|manifest unknown"
        r"|pull access denied for (?P<denied>[^,\s]+)|failed to resolve reference \"(?P<reference>[^\"]+)\""
        r"|daemon: repository \S+ not found|requested access to the resource is denied)",
        FailureCause.IMAGE_MISSING,
        "The image[ {name}][ {tag}][ {denied}][ {reference}] is not on the node and could not be pulled.",
        "Correct image, or log in to its registry on the node (docker login). An image that was built locally must be "
        "built on each node.",
        needle=(
            "daemon: repository",
            'failed to resolve reference "',
            *("manifest for", "manifest unknown", "o such image:", "pull access denied for"),
            "requested access to the resource is denied",
        ),
        on="image",
    ),
    failure_rule(
        r"NVML: Insufficient Permissions",
        FailureCause.PERMISSION,
        "The container's user may not use the GPU's devices (NVML: Insufficient Permissions).",
        "Look at the owner and mode of /dev/nvidia* on the node, and at the user that the container runs as.",
        needle="NVML: Insufficient Permissions",
        on="container.gpus",
    ),
    failure_rule(
        r"permission denied while trying to connect to the [Dd]ocker|dial unix /\S*docker\.sock: connect: permission denied",
        FailureCause.PERMISSION,
        "This user has no permission to use Docker on the node.",
        "On the node: sudo usermod -aG docker $USER, then log in again.",
        needle="permission denied",
    ),
)
_SHELL_START = r"(?:(?:/bin/|/usr/bin/)?(?:ba|da)?sh (?:-\w{1,12} (?:pipefail )?){1,3})?"
# BuildKit, Docker's older builder, Podman. Of their compilers' errors, which are those of a start in other logs, they say the step.
_BUILD_FAILURES = (
    failure_rule(
        r"^(?:#\d{1,4} (?:\d{1,6}\.\d{1,3} {1,8})?)?The user requested (?:\(constraint\) )?(?P<what>[\w.\[\]-]{1,80}[<>=!~]=?\S{0,80})$",
        FailureCause.BROKEN_IMAGE,
        "The build of an image failed: pip was asked for {what}, and another package does not go with that version.",
        "The lines after this one (depends on) name it and the versions that it takes: ask for one of them, or for no certain version.",
        needle="The user requested ",
        on="image",
    ),
    failure_rule(
        rf"(?:process \"|^The command '|^Error: (?:error )?building at STEP \"(?:RUN )?){_SHELL_START}(?P<step>.{{1,2000}}?)[\"']"
        r"(?: did not complete successfully: exit code: | returned a non-zero code: |: .{0,160}\bexit status )"
        r"(?P<code>(?P<killed>137)|\d{1,3})"
        r"|^(?:[Ee][Rr][Rr][Oo][Rr]: |target \S{1,80}: ){0,2}(?:failed to build: )?"
        r"(?P<what>failed to solve: (?!process \").{1,300}|unable to prepare context: .{1,300}|(?:error )?building at STEP \".{1,300})",
        FailureCause.BROKEN_IMAGE,
        "The build of an image failed[: its step `{step}` ended with exit code {code}][: {what}].",
        "[It was killed ({killed}), most often for memory: let fewer jobs run at once (MAX_JOBS). ]What the step printed stands above this line: "
        "correct it, and build again. On a Spark all that it installs has to be there for arm64. No model server ran.",
        needle=(
            *("did not complete successfully: exit code", "returned a non-zero code: ", "building at STEP "),
            *("exit status ", "failed to solve: ", "unable to prepare context: "),
        ),
        on="image",
        at_any_level=True,
    ),
    failure_rule(
        r"No matching distribution found for (?P<what>[^\s(]{1,120})",
        FailureCause.BROKEN_IMAGE,
        "pip found no {what} for this Python and this processor.",
        "Correct its name or version. Many packages have nothing for a Spark (arm64, a new CUDA): then take an image that holds it, or build it "
        "from source.",
        needle="No matching distribution found for ",
        weight=FailureWeight.LIKELY,
    ),
)
OTHER_DOCKER_FAILURES = (
    *_BUILD_FAILURES,
    failure_rule(
        r"^(?:docker: |Error: |validating \S{1,200}: )?(?P<what>invalid reference format.*|error during connect: .*|dependency failed to start: .*"
        r"|service \"[^\"]{1,80}\" (?:refers to undefined|has neither) .*|no configuration file provided: not found"
        r"|services\.\S{1,200} .{1,160}|yaml: (?:line \d+|unmarshal error).*)"
        r"|(?P<file>The Compose file '[^']{1,200}' is invalid)|^Cannot connect to the (?P<daemon>Docker daemon at \S{1,80})",
        FailureCause.DOCKER_REFUSED,
        "Docker refused[: {what}][: {file}][: the {daemon} does not answer].",
        "Correct the command or the compose file where it says; for a daemon that does not answer: sudo systemctl start docker.",
        needle=(
            "invalid reference format",
            "error during connect: ",
            "dependency failed to start: ",
            *(" refers to undefined ", " has neither "),
            *("no configuration file provided", "services.", "yaml: ", "The Compose file '"),
            "Cannot connect to the Docker daemon",
        ),
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"^(?:docker: |Error: )?unknown (?:shorthand )?flag: (?:'(?P<short>\w)' in )?-{0,2}(?P<flag>[\w-]+)",
        FailureCause.UNKNOWN_FLAG,
        "The program that starts it has no flag {flag}.",
        "Correct or remove it: --help lists the flags. `docker run` wants its own before the image, and the engine's after it.",
        needle=("unknown flag: ", "unknown shorthand flag: "),
        fatal=True,
    ),
    failure_rule(
        # Compose tells it twice: in the container's row, which may be cut, and as its last words.
        r"(?:(?<!\w )Error response from daemon|OCI runtime create failed|failed to create (?:shim )?task(?: for container)?): (?P<what>\S.*)",
        FailureCause.DOCKER_REFUSED,
        "Docker refused: {what}",
        "Correct what Docker names: a mount, a network, a device, a limit.",
        needle=("Error response from daemon: ", "OCI runtime create failed: ", "failed to create "),
        weight=FailureWeight.LIKELY,
    ),
)
