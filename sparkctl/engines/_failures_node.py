"""What the node or the image lacks, in the words of Docker, the driver, CUDA and the C library."""

from __future__ import annotations

from sparkctl.engines._vocabulary import ERROR, rule
from sparkctl.engines.base import Weight
from sparkctl.model.verdict import Cause

_DOCKER = (
    rule(
        r"could not select device driver|[Uu]nknown (?:or invalid )?runtime (?:name|specified):? nvidia"
        r"|failed to inject CDI devices|nvidia-container-(?:cli|runtime).*(?:initialization error|no such file or directory"
        r"|not found in \$PATH)|unresolvable CDI devices? (?P<device>\S+)",
        Cause.GPU_RUNTIME_MISSING,
        "Docker could not give the container a GPU[ ({device})]: the NVIDIA container toolkit is missing or not set up.",
        "On the node: install nvidia-container-toolkit, then sudo nvidia-ctk runtime configure --runtime=docker and "
        "restart Docker. `nvidia-smi` there says whether the driver itself works.",
        needle="",
        fatal=True,
    ),
    rule(
        rf"{ERROR}.*(?:No CUDA GPUs are available|Found no NVIDIA driver on your system|Failed to infer device type"
        r"|no CUDA-capable device is detected|NVML Shared Library Not Found|Driver/library version mismatch)"
        r"|^(?:WARNING: )?The NVIDIA Driver was not detected",
        Cause.GPU_RUNTIME_MISSING,
        "The container sees no GPU.",
        "Set container.gpus: all; on the node, nvidia-smi and the NVIDIA container toolkit have to work. After a driver "
        "update the node wants a reboot.",
        needle="e",
        on="container.gpus",
    ),
    rule(
        r"NVIDIA driver on your system is too old(?: \(found version (?P<found>\d+)\))?|CUDA driver version is insufficient"
        r"|forward compatibility was attempt|requirement error: unsatisfied condition: (?P<wants>[^,\s]+)"
        r"|system has unsupported display driver|^.{0,120}Error 80[34]\b|provided PTX was compiled with an unsupported toolchain"
        r"|cudaErrorUnsupportedPtxVersion|cudaErrorInsufficientDriver",
        Cause.DRIVER_MISMATCH,
        "The node's NVIDIA driver is too old for this image[ (it wants {wants})][ (it is for CUDA {found})].",
        "Update the node (DGX OS), or take an image built for its CUDA version.",
        needle="r",
        on="image",
    ),
    rule(
        r"[Ee]xec format error\"?(?:: unknown)?\.?$|no matching manifest for (?P<platform>\S+)",
        Cause.IMAGE_ARCH,
        "The image holds programs of another processor: a Spark is arm64[, and there is none for {platform}].",
        "Take an image built for linux/arm64.",
        needle="",
        on="image",
        fatal=True,
    ),
    rule(
        r"requested image's platform \((?P<its>[^)]*)\) does not match the detected host platform",
        Cause.IMAGE_ARCH,
        "The image was built for {its}: a Spark is linux/arm64.",
        "Take an image built for linux/arm64.",
        needle="requested image's platform",
        on="image",
        weight=Weight.LIKELY,
    ),
    rule(
        r"(?:[Nn]o such image: (?P<name>\S+)|manifest for (?P<tag>\S+) not found|manifest unknown"
        r"|pull access denied for (?P<denied>[^,\s]+)|failed to resolve reference \"(?P<reference>[^\"]+)\""
        r"|daemon: repository \S+ not found|requested access to the resource is denied)",
        Cause.IMAGE_MISSING,
        "The image[ {name}][ {tag}][ {denied}][ {reference}] is not on the node and could not be pulled.",
        "Correct image, or log in to its registry on the node (docker login). An image that was built there has to be built "
        "on each node.",
        needle="",
        on="image",
    ),
    rule(
        r"permission denied while trying to connect to the [Dd]ocker|dial unix /\S*docker\.sock: connect: permission denied",
        Cause.PERMISSION,
        "This login may not talk to Docker on the node.",
        "On the node: sudo usermod -aG docker $USER, then log in anew.",
        needle="permission denied",
    ),
)
_CUDA = (
    rule(
        rf"{ERROR}.*(?:no kernel image is available for execution|cudaErrorNoKernelImageForDevice"
        r"|device kernel image is invalid|invalid device function)",
        Cause.KERNEL_UNSUPPORTED,
        "The image has no GPU code for the GB10 (compute capability 12.1).",
        "Take an image built for sm_121.",
        needle="rror",
        on="image",
    ),
    rule(
        r"ptxas fatal\s*: Value '(?P<arch>sm_\w+)' is not defined|nvcc fatal\s*: Unsupported gpu architecture '(?P<gpu>\w+)'",
        Cause.KERNEL_UNSUPPORTED,
        "The image's CUDA tools do not know [{arch}][{gpu}], which is the GB10.",
        "Set env.TRITON_PTXAS_PATH: /usr/local/cuda/bin/ptxas, or take a newer image.",
        needle=" fatal",
        on="env.TRITON_PTXAS_PATH",
        to="/usr/local/cuda/bin/ptxas",
    ),
    rule(
        rf"{ERROR}.*(?:an illegal instruction was encountered|cudaErrorIllegalInstruction)"
        r"|^Fatal Python error: Illegal instruction",
        Cause.KERNEL_UNSUPPORTED,
        "A kernel of this image uses an instruction that the GB10 lacks.",
        "Choose another backend for the MoE or FP4 kernels (not flashinfer_cutlass), or take a newer image.",
        needle="",
        on="image",
    ),
    rule(
        r"[Kk]ernel built for (?P<built>[\w -]+), but running on (?P<arch>sm_?\w+)"
        rf"|{ERROR}.*(?:No compiled \w+ for (?:a compute capability|CUDA device)|(?:SM|sm_?)12[01]a? (?:is )?not supported"
        r"|not supported (?:on|for|by) (?:SM|sm_?)12[01]|[Uu]nsupported (?:compute capability|SM version|GPU arch\w*)"
        r"|[Cc]ompute capability (?:not supported|12\.1)|is not supported for the current GPU\. Minimum capability"
        r"|RuntimeError: .*requires (?:SM|sm)_?\d+)",
        Cause.KERNEL_UNSUPPORTED,
        "A kernel that the model needs does not run on the GB10 (sm_121)[: it was built for {built}].",
        "Choose another backend for it (attention, MoE, FP4), or take an image built for sm_121.",
        needle="",
        on="image",
    ),
    rule(
        rf"{ERROR}.*Triton Error \[CUDA\]: an illegal memory access",
        Cause.ENGINE_BUG,
        "A Triton kernel of this image reads outside of its memory, as the b12x MoE kernels do on a GB10.",
        "Choose another MoE backend, or take a newer image.",
        needle="Triton Error",
        on="image",
    ),
)
_FILES = (
    rule(
        rf"{ERROR}.*(?:No space left on device|Disk quota exceeded)|: [Nn]o space left on device|^No space left on device",
        Cause.DISK_FULL,
        "A disk is full on the node, or the container's shared memory is.",
        "Free space (df -h on the node, docker system df); if /dev/shm is meant, raise container.shm_size.",
        needle="",
        on="container.shm_size",
    ),
    rule(
        rf"{ERROR}.*\[Errno (?:13|1|30)\] (?P<what>[^:]*)(?:: '(?P<path>[^']*)')?|{ERROR}Permission denied(?P<rest>.*)"
        r"|^(?:[\w./-]+: ){1,3}(?P<said>[Pp]ermission denied)$",
        Cause.PERMISSION,
        "The container may not use[ {path}] what it needs[: {what}][: {said}].",
        "Correct the owner or mode of the mounted directory on the node, or mount it writable.",
        needle="",
        on="mounts",
    ),
    rule(
        rf"^(?:ERROR:\s+|[\w.]*Error: )?\[Errno 98\]|{ERROR}.*[Aa]ddress already in use|couldn't bind HTTP server socket"
        r"|failed to bind host port for (?P<host>\S+)|Bind for (?P<bind>\S+) failed: port is already allocated",
        Cause.PORT_IN_USE,
        "The port[ ({host})][ ({bind})] is in use by another process.",
        "Stop the other process (ss -ltnp on the node shows it), or choose another port.",
        needle="",
        on="port",
        fatal=True,
    ),
)

NODE = _DOCKER + _CUDA + _FILES
