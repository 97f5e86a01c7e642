"""Failure rules for what the node or the image lacks, as Docker, the driver, CUDA and the C library report it; and for ranks of a
model that lost each other, as NCCL, Gloo, torch's store and Ray report it.
"""

from __future__ import annotations

from sparkctl.engines.base import FailureWeight
from sparkctl.engines.log_rules import EXCEPTION_PREFIX, failure_rule
from sparkctl.model.verdict import FailureCause

_DOCKER_FAILURES = (
    failure_rule(
        r"[Dd]river/library version mismatch",
        FailureCause.GPU_RUNTIME_MISSING,
        "The node's NVIDIA driver was updated, and the older one still runs: its library and its kernel module differ.",
        "Reboot the node.",
        needle="river/library version mismatch",
    ),
    failure_rule(
        r"could not select device driver|[Uu]nknown (?:or invalid )?runtime (?:name|specified):? nvidia"
        r"|failed to inject CDI devices|nvidia-container-(?:cli|runtime).*(?:(?:mount|detection|ldcache|device|container) error"
        r"|requirement error: (?!unsatisfied condition)"
        r"|initialization error|no such file or directory"
        r"|command not found|not found in \$PATH)|unable to retrieve OCI runtime error.{0,300}: exec: \"nvidia-container-runtime\""
        r"|unresolvable CDI devices? (?P<device>\S+)",
        FailureCause.GPU_RUNTIME_MISSING,
        "Docker could not give the container a GPU[ ({device})]: the NVIDIA container toolkit is missing or not set up.",
        "On the node: install nvidia-container-toolkit, then sudo nvidia-ctk runtime configure --runtime=docker and "
        "restart Docker. `nvidia-smi` there shows whether the driver itself works.",
        needle=(
            "could not select device driver",
            "failed to inject CDI devices",
            "nvidia-container-",
            "runtime name",
            "runtime specified",
            "unresolvable CDI device",
        ),
        fatal=True,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:No CUDA GPUs are available|Found no NVIDIA driver on your system|Failed to infer device type"
        r"|no CUDA-capable device is detected|NVML Shared Library Not Found)"
        r"|^(?:WARNING: )?The NVIDIA Driver was not detected",
        FailureCause.GPU_RUNTIME_MISSING,
        "The container sees no GPU.",
        "Set container.gpus: all; on the node, nvidia-smi and the NVIDIA container toolkit have to work. After a driver "
        "update reboot the node.",
        needle=(
            "Failed to infer device type",
            "Found no NVIDIA driver on your system",
            "NVML Shared Library Not Found",
            "No CUDA GPUs are available",
            "The NVIDIA Driver was not detected",
            "no CUDA-capable device is detected",
        ),
        on="container.gpus",
    ),
    failure_rule(
        r"NVIDIA driver on your system is too old(?: \(found version (?P<found>\d+)\))?|CUDA driver version is insufficient"
        r"|forward compatibility was attempt|requirement error: unsatisfied condition: (?P<wants>[^,\s]+)"
        r"|system has unsupported display driver|^.{0,120}Error 80[34]\b|provided PTX was compiled with an unsupported toolchain"
        r"|cudaErrorUnsupportedPtxVersion|cudaErrorInsufficientDriver"
        r"|^ERROR: This container was built for NVIDIA Driver Release (?P<release>[\d.]+\d)(?:.*version (?P<has>[\d.]*\d) was)?",
        FailureCause.DRIVER_MISMATCH,
        "The node's NVIDIA driver is too old for this image[ (it needs {wants})][ (it is for CUDA {found})]"
        "[ (it needs {release})][: the node has {has}].",
        "Update the node (DGX OS), or take an image built for its CUDA version.",
        needle=(
            "CUDA driver version is insufficient",
            "ERROR: This container was built for NVIDIA Driver Release",
            "Error 80",
            "NVIDIA driver on your system is too old",
            "cudaErrorInsufficientDriver",
            "cudaErrorUnsupportedPtxVersion",
            "forward compatibility was attempt",
            "provided PTX was compiled with an unsupported toolchain",
            "requirement error: unsatisfied condition:",
            "system has unsupported display driver",
        ),
        on="image",
    ),
    failure_rule(
        r"[Ee]xec format error\"?(?:: unknown)?\.?$|no matching manifest for (?P<platform>\S+)",
        FailureCause.IMAGE_ARCH,
        "The image holds programs of another processor: a Spark is arm64[, and there is none for {platform}].",
        "Take an image built for linux/arm64.",
        needle=("no matching manifest for", "xec format error"),
        on="image",
        fatal=True,
    ),
    failure_rule(
        r"requested image's platform \((?P<its>[^)]*)\) does not match the detected host platform",
        FailureCause.IMAGE_ARCH,
        "The image was built for {its}: a Spark is linux/arm64.",
        "Take an image built for linux/arm64.",
        needle="requested image's platform",
        on="image",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"(?:Get|Head) \"?https?://(?P<registry>[^/\"\s]+)/v\d/[^\"]*\"?: (?:(?P<why>unauthorized|denied|net/http: .*"
        r"|context deadline exceeded|dial tcp.*|EOF|TLS .*|x509: .*|proxyconnect.*))"
        r"|(?:^|daemon: )(?P<said>unauthorized: (?:authentication|access|incorrect).*)"
        r"|daemon: (?P<other>net/http: (?:request canceled|TLS handshake timeout).*)",
        FailureCause.IMAGE_MISSING,
        "The image could not be pulled[ from {registry}][: {why}][: {said}][: {other}].",
        "Log in to its registry on the node (docker login) where it wants that; else look at the node's way to the network, "
        "and pull again.",
        needle=('Get "http', "Get http", 'Head "http', "Head http", "unauthorized:", "net/http: "),
        on="image",
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
        "Make the directory on the node, or correct the mount.",
        needle="bind source path",
        on="mounts",
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
        "Correct image, or log in to its registry on the node (docker login). An image that was built there has to be built "
        "on each node.",
        needle=(
            "daemon: repository",
            'failed to resolve reference "',
            "manifest for",
            "manifest unknown",
            "o such image:",
            "pull access denied for",
            "requested access to the resource is denied",
        ),
        on="image",
    ),
    failure_rule(
        r"permission denied while trying to connect to the [Dd]ocker|dial unix /\S*docker\.sock: connect: permission denied",
        FailureCause.PERMISSION,
        "This login may not talk to Docker on the node.",
        "On the node: sudo usermod -aG docker $USER, then log in again.",
        needle="permission denied",
    ),
)
_CUDA_FAILURES = (
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:no kernel image is available for execution|cudaErrorNoKernelImageForDevice"
        r"|device kernel image is invalid|invalid device function)",
        FailureCause.KERNEL_UNSUPPORTED,
        "The image has no GPU code for the GB10 (compute capability 12.1).",
        "Take an image built for sm_121.",
        needle=(
            "no kernel image is available for execution",
            "cudaErrorNoKernelImageForDevice",
            "device kernel image is invalid",
            "invalid device function",
        ),
        on="image",
    ),
    failure_rule(
        r"ptxas fatal\s*: Value '(?P<arch>sm_\w+)' is not defined|nvcc fatal\s*: Unsupported gpu architecture '(?P<gpu>\w+)'",
        FailureCause.KERNEL_UNSUPPORTED,
        "The image's CUDA tools do not know [{arch}][{gpu}], which is the GB10.",
        "Set env.TRITON_PTXAS_PATH: /usr/local/cuda/bin/ptxas, or take a newer image.",
        needle=("ptxas fatal", "nvcc fatal"),
        on="env.TRITON_PTXAS_PATH",
        to="/usr/local/cuda/bin/ptxas",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:an illegal instruction was encountered|cudaErrorIllegalInstruction)"
        r"|^Fatal Python error: Illegal instruction",
        FailureCause.KERNEL_UNSUPPORTED,
        "A kernel of this image uses an instruction that the GB10 lacks.",
        "Choose another backend for the MoE or FP4 kernels (not flashinfer_cutlass), or take a newer image. NVFP4 checkpoints "
        "of Qwen3.5 did this on a GB10 (github.com/vllm-project/vllm/issues/35519): FP8 or INT4 ones run.",
        needle=(
            "Fatal Python error: Illegal instruction",
            "an illegal instruction was encountered",
            "cudaErrorIllegalInstruction",
        ),
        on="image",
    ),
    failure_rule(
        r"[Kk]ernel built for (?P<built>[\w -]+), but running on (?P<arch>sm_?\w+)"
        rf"|{EXCEPTION_PREFIX}.*(?:No compiled [\w -]{{1,60}} for (?:a compute capability|CUDA device)"
        r"|(?:SM|sm_?)12[01]a? (?:is )?(?:not |un)supported"
        r"|not supported (?:on|for|by) (?:SM|sm_?)12[01]|[Uu]nsupported (?:compute capability|SM version|GPU arch\w*)"
        r"|[Cc]ompute capability (?:not supported|12\.1)|is not supported for the current GPU\. Minimum capability"
        r"|RuntimeError: .*requires (?:SM|sm)_?\d+)",
        FailureCause.KERNEL_UNSUPPORTED,
        "A kernel that the model needs does not run on the GB10 (sm_121)[: it was built for {built}].",
        "Choose another backend for it (attention, MoE, FP4), or take an image built for sm_121.",
        needle=(", but running on", "No compiled", "RuntimeError:", "ompute capability", "supported"),
        on="image",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*Triton Error \[CUDA\]: an illegal memory access",
        FailureCause.ENGINE_BUG,
        "A Triton kernel of this image reads outside of its memory, as the b12x MoE kernels do on a GB10.",
        "Choose another MoE backend, or take a newer image.",
        needle="Triton Error",
        on="image",
    ),
)
_FILE_SYSTEM_FAILURES = (
    failure_rule(
        rf"(?:{EXCEPTION_PREFIX}|^)DataLoader worker .*killed by signal: Bus error|{EXCEPTION_PREFIX}.*out of shared memory",
        FailureCause.DISK_FULL,
        "The container's shared memory is full.",
        "Raise container.shm_size, or set container.ipc: host.",
        needle=("killed by signal: Bus error", "out of shared memory"),
        on="container.shm_size",
    ),
    failure_rule(
        r"(?:\b(?:write|mkdir|copy|extract|open)\S*|: (?:Error )?writing) (?P<path>/[^\s:]+): no space left on device",
        FailureCause.DISK_FULL,
        "The node's disk is full: nothing can be written to {path}.",
        "Free space on the node: df -h, docker system df, docker system prune.",
        needle="no space left",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:No space left on device|Disk quota exceeded)|: [Nn]o space left on device|^No space left on device",
        FailureCause.DISK_FULL,
        "A disk is full on the node, or the container's shared memory is.",
        "Free space (df -h on the node, docker system df); if /dev/shm is meant, raise container.shm_size.",
        needle=("Disk quota exceeded", "o space left on device"),
        on="container.shm_size",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*\[Errno (?:13|1|30)\] (?P<what>[^:]*)(?:: '(?P<path>[^']*)')?|"
        rf"{EXCEPTION_PREFIX}Permission denied(?P<rest>.*)"
        r"|^(?:[\w./-]+: ){1,3}(?P<said>[Pp]ermission denied)$"
        r"|Permission denied \(os error 13\)",
        FailureCause.PERMISSION,
        "The container is not allowed to use[ {path}] what it needs[: {what}][: {said}].",
        "Correct the owner or mode of the mounted directory on the node, or mount it writable.",
        needle=("[Errno ", "ermission denied"),
        on="mounts",
    ),
    failure_rule(
        r"^(?:ERROR:\s+|[\w.]*Error: )?\[Errno 99\].{0,200}?(?:on address \((?P<address>[^)]{1,60})\)|[Cc]annot assign requested address)",
        FailureCause.BAD_VALUE,
        "The server is to listen on an address that this machine does not have[: {address}].",
        "Correct args.host: 0.0.0.0 is every address.",
        needle="[Errno 99]",
        on="args.host",
        fatal=True,
    ),
    failure_rule(
        rf"^(?:ERROR:\s+|[\w.]*Error: )?\[Errno 98\]|{EXCEPTION_PREFIX}.*[Aa]ddress already in use|couldn't bind HTTP server socket"
        r"|server socket has failed to listen on any local network address"
        r"|: bind: address already in use|failed to bind host port for (?P<host>\S+)|Bind for (?P<bind>\S+) failed: port is already allocated"
        r"|Ports are not available: exposing port \w+ (?P<exposed>\S+)",
        FailureCause.PORT_IN_USE,
        "The port[ ({host})][ ({bind})][ ({exposed})] is in use by another process.",
        "Stop the other process (ss -ltnp on the node shows it), or choose another port.",
        needle=(
            "failed: port is already allocated",
            "[Errno 98]",
            "couldn't bind HTTP server socket",
            "ddress already in use",
            "failed to listen on any local network address",
            "failed to bind host port for",
            "Ports are not available: exposing port ",
        ),
        on="port",
        fatal=True,
    ),
)

_OTHER_DOCKER_FAILURES = (
    failure_rule(
        r"(?:Error response from daemon|OCI runtime create failed|failed to create (?:shim )?task(?: for container)?): (?P<what>\S.*)",
        FailureCause.DOCKER_REFUSED,
        "Docker refused: {what}",
        "Correct what Docker names: a mount, a network, a device, a limit.",
        needle=("Error response from daemon: ", "OCI runtime create failed: ", "failed to create "),
        weight=FailureWeight.LIKELY,
    ),
)
NODE_FAILURES = _DOCKER_FAILURES + _CUDA_FAILURES + _FILE_SYSTEM_FAILURES + _OTHER_DOCKER_FAILURES


_CHECK_OTHER_NODE = "Look at the log of the other node and at the link between the two."

RANK_FAILURES = (
    failure_rule(
        r"(?P<count>\d+) Workers? \(tasks / actors\) killed due to memory pressure \(OOM\)(?:.*?IP: (?P<ip>[\w.:]+))?"
        r"|^(?:[\w.]+\.)?OutOfMemoryError: Task was killed due to the node running low on memory"
        r"|exceeds the memory usage threshold of (?P<share>[\d.]*\d).*Ray killed this worker",
        FailureCause.RAY,
        "Ray's memory monitor killed a worker[ on {ip}][: over {share} of the node's memory was in use].",
        "On a Spark it counts the model's own memory: set env.RAY_memory_monitor_refresh_ms: 0 on every node, and leave the "
        "watch to sparkctl's guard.",
        needle=("killed due to", "Ray killed this worker"),
        on="env.RAY_memory_monitor_refresh_ms",
        to="0",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:Ray does not allocate any GPUs|Current node has no GPU available|Ray is not (?:initialized|installed)"
        r"|Cannot provide a placement group|available GPUs in the placement group|No available node types can fulfill"
        r"|Could not connect to Ray|Failed to connect to (?:Ray|GCS)|Ray cluster)"
        r"|^(?:[\w.]+\.)?ConnectionError: Could not find any running Ray instance",
        FailureCause.RAY,
        "Ray could not place the model's workers on the nodes.",
        "Look at `ray status` in the head's container: every Spark has to be there with its GPU. Without Ray: "
        "args.distributed-executor-backend: mp with nnodes and node-rank.",
        needle=(
            "Ray does not allocate any GPUs",
            "Current node has no GPU available",
            "Ray is not ",
            "placement group",
            "No available node types can fulfill",
            "Could not connect to Ray",
            "Failed to connect to ",
            "Ray cluster",
            "Could not find any running Ray instance",
        ),
        on="args.distributed-executor-backend",
    ),
    failure_rule(
        r"^(?:ray\.(?:exceptions\.)?)?(?P<what>(?:ActorDiedError|ActorUnavailableError|WorkerCrashedError|NodeDiedError"
        r"|RaySystemError|RayActorError)[:(].*)|RayWorkerProc rank=(?P<rank>\d+) died unexpectedly"
        r"|\(raylet\).*(?P<said>The node with node id.*marked dead|raylet.*died)",
        FailureCause.RAY,
        "Ray lost a worker[ (rank {rank})][: {what}][: {said}].",
        _CHECK_OTHER_NODE,
        needle=(
            "(raylet)",
            "ActorDiedError",
            "ActorUnavailableError",
            "NodeDiedError",
            "RayActorError",
            "RaySystemError",
            "RayWorkerProc rank=",
            "WorkerCrashedError",
        ),
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"Some Ray subprocesses exited unexpectedly",
        FailureCause.RAY,
        "Ray ended on this node: a worker's does where the head is gone, or the way to it.",
        _CHECK_OTHER_NODE,
        needle="Some Ray subprocesses exited unexpectedly",
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"DistStoreError: Timed out after (?P<seconds>\d+) seconds waiting for clients\. (?P<have>\d+)/(?P<of>\d+) clients"
        r"|The client socket has (?:timed out after|failed to connect)(?:.*?connect to \(?(?P<peer>[\w.:]+), \d+)?",
        FailureCause.WORKER_LOST,
        "The other node of this model did not come[: {have} of {of} joined within {seconds} s][: no answer from {peer}].",
        "Start the model on both nodes at about the same time, and check that args.dist-init-addr (master-addr) is reachable "
        f"from the other. {_CHECK_OTHER_NODE}",
        needle=("DistStoreError: Timed out after", "The client socket has"),
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"Watchdog caught collective operation timeout: WorkNCCL\((?:.*?OpType=(?P<op>\w+))?|NCCL error in: (?P<where>\S+)"
        rf"|{EXCEPTION_PREFIX}.*NCCL (?:error|operation)|^(?:[\w.]+: )?(?P<code>nccl(?:SystemError|InternalError|RemoteError"
        r"|UnhandledCudaError|InvalidUsage))\b",
        FailureCause.NCCL,
        "NCCL, by which the ranks talk to each other, failed[ ({code})][ (in {op})].",
        "Check the link between the nodes (sparkctl doctor), NCCL_SOCKET_IFNAME, NCCL_IB_HCA and GLOO_SOCKET_IFNAME on both. "
        f"{_CHECK_OTHER_NODE}",
        needle=(
            "InternalError",
            "InvalidUsage",
            "NCCL error",
            "NCCL operation",
            "RemoteError",
            "SystemError",
            "UnhandledCudaError",
            "Watchdog caught collective operation timeout: WorkNCCL(",
        ),
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"NCCL WARN (?!NET/IB ?: Got completion)(?P<warn>.*?)\.?\s*$",
        FailureCause.NCCL,
        "NCCL, by which the ranks talk to each other, warned: {warn}.",
        "Check the link between the nodes (sparkctl doctor), NCCL_SOCKET_IFNAME, NCCL_IB_HCA and GLOO_SOCKET_IFNAME on both. "
        f"{_CHECK_OTHER_NODE}",
        needle="NCCL WARN ",
        weight=FailureWeight.DEATH,
        warning=True,
    ),
    failure_rule(
        r"Gloo connectFullMesh failed|\bgloo\b.*(?:Connection refused|[Tt]imed out|[Uu]nable to find address for: (?P<name>\S+))",
        FailureCause.NCCL,
        "The ranks could not reach each other (Gloo)[: no address for {name}].",
        f"Set env.GLOO_SOCKET_IFNAME to the link's interface on both nodes. {_CHECK_OTHER_NODE}",
        needle=("Gloo connectFullMesh failed", "gloo"),
        on="env.GLOO_SOCKET_IFNAME",
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"^Root Cause \(first observed failure\):",
        FailureCause.WORKER_LOST,
        "A rank of this model ended, by the word of torch's launcher.",
        "The lines of that rank before this one, or its own log, say why.",
        needle="Root Cause (first",
        weight=FailureWeight.DYING,
    ),
    failure_rule(
        r"Connection closed by peer \[(?P<peer>[^\]]*)\]",
        FailureCause.WORKER_LOST,
        "The other node ({peer}) closed the connection.",
        "It ended first: its own log says why.",
        needle="Connection closed by peer",
        weight=FailureWeight.DEATH,
    ),
)
