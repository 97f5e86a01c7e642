"""Failure rules for what the node or the image lacks, as CUDA, the C library and the file system report it; and for ranks of a
model that lost each other, as NCCL, Gloo, torch's store and Ray report it.
"""

from __future__ import annotations

from sparkctl.engines.base import FailureWeight
from sparkctl.engines.failures.docker_failures import DOCKER_FAILURES, OTHER_DOCKER_FAILURES
from sparkctl.engines.log_rules import EXCEPTION_PREFIX, failure_rule
from sparkctl.model.verdict import FailureCause

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
        r"ptxas fatal\s*: Value '(?P<arch>sm_\w+)' is not defined",
        FailureCause.KERNEL_UNSUPPORTED,
        "The image's CUDA tools do not know {arch}, which is the GB10.",
        "Set env.TRITON_PTXAS_PATH: /usr/local/cuda/bin/ptxas, or take a newer image.",
        needle="ptxas fatal",
        on="env.TRITON_PTXAS_PATH",
        to="/usr/local/cuda/bin/ptxas",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:an illegal instruction was encountered|cudaErrorIllegalInstruction)"
        r"|^Fatal Python error: Illegal instruction",
        FailureCause.KERNEL_UNSUPPORTED,
        "A kernel of this image uses an instruction that the GB10 lacks.",
        "Take a newer image, or choose another backend for the kernel (attention, MoE or FP4; not flashinfer_cutlass). If the model is an NVFP4 "
        "checkpoint, try an FP8 or INT4 one (github.com/vllm-project/vllm/issues/35519).",
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
        r"(?:Error while (?:creating|attaching to) shared memory segment|Error: failed to extend) (?P<path>/dev/shm/\S{1,100})"
        r"(?: \(size (?P<size>\d{1,15})\)| to (?P<more>\d{1,15}) bytes)?",
        FailureCause.DISK_FULL,
        "NCCL could not make its shared memory in the container[ ({size} bytes)][ ({more} bytes)]: {path}.",
        "Raise container.shm_size, or set container.ipc: host.",
        needle=("shared memory segment /dev/shm/", "failed to extend /dev/shm/"),
        on="container.shm_size",
        weight=FailureWeight.LIKELY,
        at_any_level=True,
    ),
    failure_rule(
        rf"(?:{EXCEPTION_PREFIX}|^)DataLoader worker .*killed by signal: Bus error|{EXCEPTION_PREFIX}.*out of shared memory"
        r"|Unexpected bus error encountered in worker|exceeds /dev/shm size",
        FailureCause.DISK_FULL,
        "The container's shared memory is full.",
        "Raise container.shm_size, or set container.ipc: host.",
        needle=("killed by signal: Bus error", "out of shared memory", "bus error", "exceeds /dev/shm size"),
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
        rf"{EXCEPTION_PREFIX}.*Disk quota exceeded(?:: '(?P<path>/[^']{{1,120}}))?",
        FailureCause.DISK_FULL,
        "The quota of the user or the project on this file system is used up[: {path}]. The disk itself may have room.",
        "quota -s (Lustre: lfs quota) on the node tells the limit. Remove what is not needed there, or mount a directory on another disk for it. "
        "<vLLM: If it is a cache, env.VLLM_CACHE_ROOT moves it.>",
        needle="Disk quota exceeded",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:No space left on device(?:: '(?P<path>/[^']{{1,120}}))?|database or disk is full|Local disk is full)"
        r"|: [Nn]o space left on device|^No space left on device|^(?:/\S{1,80}/)?tar: .{1,200}: Wrote only \d+ of \d+ bytes"
        r"|ObjectStoreFullError: |low on resource: ephemeral-storage"
        r"|don't have enough free space in (?P<where>\S{1,200})",
        FailureCause.DISK_FULL,
        "A disk is full on the node, or the container's shared memory is[ ({where})][: {path}].",
        "Free space (df -h on the node, docker system df; docker builder prune); if /dev/shm is meant, raise container.shm_size.",
        needle=(
            "o space left on device",
            "database or disk is full",
            "Local disk is full",
            "ObjectStoreFullError: ",
            "ephemeral-storage",
            ": Wrote only ",
            "don't have enough free space",
        ),
        on="container.shm_size",
    ),
    failure_rule(
        r"\bgetpw(?:uid|nam)\(\): (?:uid|name) not found: '?(?P<user>[\w.-]{1,64})|^(?:[\w.]+\.)?OSError: No username set in the environment",
        FailureCause.PERMISSION,
        "The container runs as a user[ ({user})] that its /etc/passwd does not name, and a library asks for the name.",
        "Set env.USER and env.LOGNAME to any name and env.HOME to a directory that this user may write to (for PyTorch alone "
        "env.TORCHINDUCTOR_CACHE_DIR is enough); or leave out container.options.user, or name one that the image has.",
        needle=("getpwuid(): ", "getpwnam(): ", "No username set in the environment"),
        on="env.USER",
    ),
    failure_rule(
        rf"(?:{EXCEPTION_PREFIX}|^Ignored error while ).*\[Errno (?:13|1|30)\] (?P<what>[^:]*)(?:: '(?P<path>[^']*)')?"
        rf"|{EXCEPTION_PREFIX}PermissionError at (?P<cache>\S{{1,300}}) when downloading"
        rf"|{EXCEPTION_PREFIX}(?:(?:could not|cannot|can't|couldn't|[Ff]ailed to|open|mkdir|write) (?:.{{0,300}}? ['\"]?)?)?"
        r"(?P<file>/[^\s:'\"]{1,300})'?[:.] (?:permission denied|read-only file system)"
        rf"|{EXCEPTION_PREFIX}(?:[^:]{{0,300}}: |(?P<name>\S{{1,300}}): )?[Pp]ermission denied(?! while trying)"
        rf"|{EXCEPTION_PREFIX}.{{0,120}}?\bfork/exec (?P<program>/[^\s:]{{1,300}}): permission denied"
        r"|^(?:[\w./-]+: ){1,3}(?P<said>(?:cannot \w[\w ]{0,40} '[^']{1,300}': |/\S{1,300}: )?[Pp]ermission denied)\.?$"
        r"|^(?:open|mkdir|write) (?P<opened>/\S{1,300}): [Pp]ermission denied|^Couldn't open '(?P<key>[^']{1,300})'\. permission denied"
        r"|(?:Permission denied|Read-only file system) \(os error (?:13|30)\)"
        rf"|{EXCEPTION_PREFIX}cannot cache function .{{0,80}}no locator available for file '(?P<numba>[^']{{1,300}})'",
        FailureCause.PERMISSION,
        "The container's user is refused access[ to {path}][ to {program}][ to {name}][ to {cache}][ to {file}][ to {opened}]"
        "[ to {key}][ to {numba}][: {said}][: {what}].",
        "Correct the owner or mode of the mounted directory on the node, or mount it writable.",
        needle=(
            "[Errno ",
            "ermission denied",
            "ead-only file system",
            "PermissionError at ",
            "no locator available for file",
        ),
        on="mounts",
    ),
    failure_rule(
        r"^(?:ERROR:\s+|[\w.]*Error: )?\[Errno 99\].{0,200}?(?:on address \((?P<address>[^)]{1,60})\)|[Cc]annot assign requested address)",
        FailureCause.BAD_VALUE,
        "The server was told to listen on an address that this machine does not have[: {address}].",
        "Set args.host: 0.0.0.0, which is every address, or one that this machine has.",
        needle="[Errno 99]",
        on="args.host",
        fatal=True,
    ),
    failure_rule(
        r"\blisten \w{2,9} (?P<address>\S{1,80}): bind: permission denied|\blisten EACCES: permission denied (?P<node>\S{1,80})",
        FailureCause.PERMISSION,
        "The program may not listen on [{address}][{node}]: ports below 1024 are the root user's.",
        "Choose a port from 1024 on, or let the container's user be root.",
        needle=("bind: permission denied", "listen EACCES"),
        on="port",
        fatal=True,
    ),
    failure_rule(
        r"couldn't bind HTTP server socket, hostname: (?P<path>\S{0,200}/\S{1,200}|\S{1,200}\.sock)",
        FailureCause.CRASHED,
        "The server could not make its socket {path}: no port is involved.",
        "Its directory is missing or not writable, or an old file is in the socket's place: create it, correct its owner, or remove "
        "the file. Or give args.host an address (127.0.0.1) in place of a path.",
        needle="couldn't bind HTTP server socket",
        on="args.host",
        fatal=True,
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*[Aa]ddress already in use \(addr='ipc://(?P<path>[^']{{1,200}})'\)",
        FailureCause.PORT_IN_USE,
        "Another process listens on the socket {path}.",
        "Stop that process (another engine in the same container, or with the same /tmp), or give this one another socket. "
        "<vLLM: Of LMCache, every engine needs its own lmcache_rpc_port, in the kv_connector_extra_config of args.kv-transfer-config.>",
        needle="ddress already in use (addr='ipc://",
    ),
    failure_rule(
        r"^(?:ERROR:\s+)?(?:\[Errno (?:98|48|10048)\] )?error while attempting to bind on address \('[^']{0,80}', (?P<asked>\d{1,5})[),]"
        rf"|{EXCEPTION_PREFIX}(?:\[Errno (?:98|48|10048)\] )?error while attempting to bind on address \('[^']{{0,80}}', (?P<number>\d{{1,5}})[),]"
        rf"|^(?:ERROR:\s+|[\w.]*Error: )?\[Errno (?:98|48|10048)\]|{EXCEPTION_PREFIX}.*[Aa]ddress already in use"
        r"|couldn't bind HTTP server socket, hostname: (?!\S{0,200}/|\S{1,200}\.sock\b)"
        r"|server socket has failed to listen on any local network address"
        r"|^(?:\w{1,20}: )?Failed to bind to address (?P<bare>\S{1,80})"
        r"|: bind: (?:address already in use|Only one usage of each socket address)"
        r"|^(?:\w{1,40}(?:\(\))?:? ){0,3}(?:bind|listen)\w{0,3}(?:\(\))?:? (?:failed|error)?:? ?[Aa]ddress already in use"
        r"|failed to bind host port (?:for )?(?P<host>\S+?)(?:/\w{3,4})?(?:$|:? address already in use)"
        r"|Bind for (?P<bind>\S+) failed: port is already allocated"
        r"|Ports are not available: exposing port \w+ (?P<exposed>\S+)|kind: AddrInUse\b|Socket '(?P<socket>[^']{1,80})' already in use"
        rf"|{EXCEPTION_PREFIX}.{{0,80}}\b[Pp]ort:? (?P<port>\d{{1,5}}) (?:is |was )?(?:already (?:in use|used|taken|bound)|not available|unavailable)"
        rf"|{EXCEPTION_PREFIX}port\w{{0,20}} at (?P<base>\d{{1,5}}) is not available in "
        rf"|{EXCEPTION_PREFIX}.{{0,60}}(?:Cannot find empty port in range|Failed to bind to address (?P<grpc>\S{{1,80}}))",
        FailureCause.PORT_IN_USE,
        "The port[ {asked}][ {number}][ {port}][ {base}]"
        "[ ({host})][ ({bind})][ ({exposed})][ ({socket})][ ({grpc})][ ({bare})] is in use by another process.",
        "Stop the other process (on the node ss -ltnp shows it, or docker ps the container that has it), or choose another port.",
        needle=(
            *("failed: port is already allocated", "[Errno 98]", "[Errno 48]", "[Errno 10048]", "AddrInUse"),
            *("Cannot find empty port in range", "error while attempting to bind on", "Failed to bind to address "),
            *("already in use", "already used", "already taken", "already bound", "not available", "unavailable"),
            *("couldn't bind HTTP server socket", "ddress already in use", "Only one usage of each socket address"),
            *("failed to listen on any local network address", "failed to bind host port "),
            "Ports are not available: exposing port ",
        ),
        on="port",
        fatal=True,
    ),
)

NODE_FAILURES = DOCKER_FAILURES + _CUDA_FAILURES + _FILE_SYSTEM_FAILURES + OTHER_DOCKER_FAILURES


_CHECK_OTHER_NODE = "Look at the log of the other node and at the link between the two."
_CHECK_LINK = (
    "Check the link between the nodes (sparkctl doctor), NCCL_SOCKET_IFNAME, NCCL_IB_HCA and GLOO_SOCKET_IFNAME on both. "
    "Look at the log of the other node, too."
)

RANK_FAILURES = (
    failure_rule(  # the process's own error has more weight
        r"\bfailed \(exitcode: (?P<code>\d{1,3})\) local_rank: (?P<rank>\d{1,5}) |^(?:[\w.]{1,120}\.)?ChildFailedError:",
        FailureCause.WORKER_LOST,
        "torchrun lost a process[ (local rank {rank}, exit code {code})].",
        "The lines before this one, or the process's own log, say why it ended.",
        needle=("failed (exitcode: ", "ChildFailedError:"),
        weight=FailureWeight.LOST,
    ),
    failure_rule(
        r"(?P<count>\d{1,9}) Workers? \(tasks / actors\) killed due to memory pressure \(OOM\)(?:.*?IP: (?P<ip>[\w.:]+))?"
        r"|^(?:[\w.]+\.)?OutOfMemoryError: Task was killed due to the node running low on memory"
        r"|exceeds the memory usage threshold of (?P<share>[\d.]{0,12}\d).*Ray killed this worker",
        FailureCause.RAY,
        "Ray's memory monitor killed a worker[ on {ip}][: over {share} of the node's memory was in use].",
        "On a Spark it counts the model's own memory: set env.RAY_memory_monitor_refresh_ms: 0 on every node, and let "
        "sparkctl's guard watch the memory.",
        needle=("killed due to", "Ray killed this worker"),
        on="env.RAY_memory_monitor_refresh_ms",
        to="0",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}Version mismatch: The cluster was started with",
        FailureCause.RAY,
        "The nodes have different versions of Ray or Python; the lines after this one name them.",
        "Use the same image on all nodes (sparkctl sync).",
        needle="Version mismatch: The cluster was started with",
        on="image",
    ),
    failure_rule(
        r"Ray component \w{1,60} is trying to use a port number (?P<port>\d+)|Session name \S{1,120} does not match persisted value",
        FailureCause.RAY,
        "Another Ray already runs on this node, or is left from an earlier start[: it has port {port}].",
        "ray stop --force in its container, or stop that container, on every node; then start again.",
        needle=("is trying to use a port number", "does not match persisted value"),
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:Ray does not allocate any GPUs|Current node has no GPU available|Ray is not (?:initialized|installed)"
        r"|Cannot provide a placement group|available \w{2,12} in the (?:cluster|placement group)|No available node types can fulfill"
        r"|Could not connect to Ray|Failed to connect to (?:Ray|GCS)|Ray cluster|ray client connection timeout)"
        r"|^Failed to connect to GCS at address (?P<gcs>\S{1,60})"
        r"|^(?:[\w.]+\.)?ConnectionError: Could not find any running Ray instance",
        FailureCause.RAY,
        "Ray could not place the model's workers on the nodes.",
        "Look at `ray status` in the head's container: every Spark has to be there with its GPU. "
        "<vLLM: It does without Ray with args.distributed-executor-backend: mp.>",
        needle=(
            "Ray does not allocate any GPUs",
            "Current node has no GPU available",
            "Ray is not ",
            "placement group",
            " in the cluster",
            "No available node types can fulfill",
            "Could not connect to Ray",
            "Failed to connect to ",
            "ray client connection timeout",
            "Ray cluster",
            "Could not find any running Ray instance",
        ),
    ),
    failure_rule(
        r"Waiting for creating a placement group of specs for (?P<seconds>[6-9]\d|\d{3,6}) seconds\. specs=(?P<specs>\[.{1,200}?\])\.",
        FailureCause.RAY,
        "Ray has waited {seconds} seconds for a place for the model's workers: no nodes have what they ask for ({specs}).",
        "Ask for no more GPUs than there are (args.tensor-parallel-size times args.pipeline-parallel-size), and look at `ray status` in the "
        "head's container: every Spark has to be there with its GPU. <vLLM: The address is that of VLLM_HOST_IP.>",
        needle="Waiting for creating a placement group",
        on="args.tensor-parallel-size",
        weight=FailureWeight.LIKELY,
        at_any_level=True,
    ),
    failure_rule(
        r"RAY_CGRAPH_get_timeout which is currently (?P<seconds>[\d.]+) seconds",
        FailureCause.RAY,
        "A step of the model took longer than Ray waits for it ({seconds} seconds).",
        "Raise env.RAY_CGRAPH_get_timeout above that (300, or 900) on every node, where Ray itself is started. If no time is enough, a worker "
        "hangs: look at its own log, and at the link between the nodes.",
        needle="RAY_CGRAPH_get_timeout which is",
        on="env.RAY_CGRAPH_get_timeout",
        weight=FailureWeight.DEATH + 1,
    ),
    failure_rule(
        r"(?:^|\s)(?:ray\.(?:exceptions\.)?)?RayChannelTimeoutError: (?:System error: )?(?P<what>[^.]{1,160})",
        FailureCause.RAY,
        "Ray waited too long for a worker's answer: {what}.",
        f"The worker may be alive, and only slow: raise env.RAY_CGRAPH_get_timeout. {_CHECK_OTHER_NODE}",
        needle="RayChannelTimeoutError",
        on="env.RAY_CGRAPH_get_timeout",
        weight=FailureWeight.DEATH,
    ),
    failure_rule(  # what Python prints where it crashes
        r"^File \"[^\"]{1,300}/pynccl_wrapper\.py\", line \d+ in (?P<call>nccl\w{1,40})",
        FailureCause.NCCL,
        "The process crashed within NCCL ({call}).",
        "Take an image with another version of NCCL, the same on every node (env.VLLM_NCCL_SO_PATH names another library). With "
        "env.NCCL_DEBUG: INFO the log tells what NCCL did before.",
        needle='/pynccl_wrapper.py", line ',
        weight=FailureWeight.DEATH + 1,
        at_any_level=True,
    ),
    failure_rule(
        r"Worker exit type: (?P<kind>\w{1,40}) Worker exit detail: (?P<detail>[^.]{1,160})\..{0,80}potential root causes",
        FailureCause.RAY,
        "Ray lost a worker, and does not know why ({kind}: {detail}).",
        "Ray lists what it may be, the kernel's OOM killer first: `dmesg -T | grep -i oom` on the worker's node shows it, and then let the "
        "model claim less. Else read that worker's own log; after that, look at the link between the nodes.",
        needle="Worker exit detail: ",
        weight=FailureWeight.DEATH,
        at_any_level=True,
    ),
    failure_rule(
        r"(?:(?:^|\s)ray\.(?:exceptions\.)?|^)(?P<what>(?:ActorDiedError|ActorUnavailableError|WorkerCrashedError|NodeDiedError"
        r"|LocalRayletDiedError|OwnerDiedError|RayChannelError|RuntimeEnvSetupError|GetTimeoutError"
        r"|RaySystemError|RayActorError)[:(].*)|RayWorkerProc rank=(?P<rank>\d+) died unexpectedly"
        r"|\(raylet\).{0,400}(?P<said>The node with node id.{0,200}marked dead|raylet.{0,200}died)",
        FailureCause.RAY,
        "Ray lost a worker[ (rank {rank})][: {what}][: {said}].",
        _CHECK_OTHER_NODE,
        needle=(
            *("(raylet)", "ActorDiedError", "ActorUnavailableError", "NodeDiedError", "RayActorError"),
            *("RaySystemError", "GetTimeoutError", "RayWorkerProc rank=", "WorkerCrashedError", "RayletDiedError"),
            *("OwnerDiedError", "RayChannelError", "RuntimeEnvSetupError"),
        ),
        weight=FailureWeight.DEATH - 1,
    ),
    failure_rule(
        r"^(?:zmq\.)?(?:error\.)?(?P<what>(?:ZMQError|ContextTerminated|Again): (?:Operation not supported|Socket operation on non-socket"
        r"|Context was terminated|Bad file descriptor|Not a socket|Resource temporarily unavailable).{0,80})",
        FailureCause.WORKER_LOST,
        "A part of the engine waits for another one, which has ended: {what}.",
        "The lines before this one may say why it ended; a process that was killed leaves none: dmesg -T | grep -i oom on the node.",
        needle=("ZMQError: ", "ContextTerminated: ", "Again: "),
        weight=FailureWeight.AFTERMATH,
    ),
    failure_rule(
        r"Some Ray subprocesses exited unexpectedly|The current node timed out during startup",
        FailureCause.RAY,
        "Ray ended on this node: a worker's Ray ends when the head, or the connection to it, is gone.",
        _CHECK_OTHER_NODE,
        needle=("Some Ray subprocesses exited unexpectedly", "The current node timed out during startup"),
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"DistStoreError: Timed out after (?P<seconds>\d+) seconds waiting for clients\. (?P<have>\d+)/(?P<of>\d+) clients"
        r"|The client socket (?:has (?:timed out after|failed to connect))"
        r"(?:.*?connect to [(\[]?(?P<peer>[\w.:-]+)\]?(?:, |:)\d+)?"
        r"|Timed out initializing process group in store based barrier"
        r"|retrieving ncclUniqueId from \[\d+\] via c10d key-value store|ORTE has lost communication with"
        r"|[Ff]ailed to connect to (?:rpc server at )?(?P<rpc>[\w.-]{1,80}:\d{1,5})$|^Remote RPC server crashed",
        FailureCause.WORKER_LOST,
        "The other node of this model did not join[: {have} of {of} joined within {seconds} s][: no answer from {peer}][: no answer from {rpc}].",
        "Start the model on both nodes at about the same time, and check that the first one's address is reachable from the "
        f"other. {_CHECK_OTHER_NODE}",
        needle=(
            "DistStoreError: Timed out after",
            "The client socket ",
            *("retrieving ncclUniqueId from", "in store based barrier"),
            "ORTE has lost communication",
            "ailed to connect to ",
            "Remote RPC server crashed",
        ),
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"NCCL error in: (?P<where>\S+)"
        rf"|{EXCEPTION_PREFIX}.*NCCL (?:error|operation)|^(?:[\w.]+: )?(?P<code>nccl(?:SystemError|InternalError|RemoteError"
        r"|UnhandledCudaError|InvalidUsage))\b",
        FailureCause.NCCL,
        "NCCL, which connects the ranks, failed[ ({code})].",
        _CHECK_LINK,
        needle=(
            *("InternalError", "InvalidUsage", "NCCL error", "NCCL operation", "RemoteError", "SystemError"),
            "UnhandledCudaError",
        ),
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"NCCL WARN (?P<warn>(?:.{0,40}Duplicate GPU detected|.{0,60}no socket interface found|socket\w{1,30} ?: (?:Connect|Connection)"
        r"|.{0,60}Connection closed by remote peer|Call to (?:bind|connect|recv|send|ibv_(?:alloc|create|modify|open"
        r"|reg)_\w{1,20}) failed(?!.*not supported)|Cuda failure|Timeout waiting for).*?)\.?\s*$",
        FailureCause.NCCL,
        "NCCL, which connects the ranks, failed: {warn}.",
        _CHECK_LINK,
        needle="NCCL WARN ",
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"NCCL WARN (?P<warn>nvml\w{1,40}\(\) failed: .*?)\.?\s*$",
        FailureCause.NCCL,
        "NCCL does not get from the driver what it asks of this node's GPU: {warn}.",
        "The fault is of this node, not of the link: compare nvidia-smi in the container and on the node. Start the container with the GPU by "
        "Docker's NVIDIA runtime (container.gpus); after an update of the driver, restart the node.",
        needle="NCCL WARN nvml",
        weight=FailureWeight.DEATH,
        warning=True,
    ),
    failure_rule(
        r"NCCL WARN (?!NET/IB ?: Got completion)(?P<warn>.*?)\.?\s*$",
        FailureCause.NCCL,
        "NCCL, which connects the ranks, warned: {warn}.",
        _CHECK_LINK,
        needle="NCCL WARN ",
        weight=FailureWeight.DEATH,
        warning=True,
    ),
    failure_rule(
        r"Gloo connectFullMesh failed|\bgloo\b.{0,400}(?:Connection refused|[Tt]imed out|[Uu]nable to find address for: (?P<name>\S+))"
        r"|(?:^|\] ?)(?:(?:\[[^\]]{1,40}\])? {1,40}\S{1,40} {1,4})?UCX  ?ERROR +(?P<ucx>.{1,120})|\*\*\* An error occurred in (?P<mpi>MPI_\w{1,40})",
        FailureCause.NCCL,
        "The ranks could not reach each other[: Gloo has no address for {name}][: UCX: {ucx}][: {mpi}].",
        "Set env.GLOO_SOCKET_IFNAME (UCX: env.UCX_NET_DEVICES, Open MPI: btl_tcp_if_include) to the link's interface on both nodes. "
        f"{_CHECK_OTHER_NODE}",
        needle=("Gloo connectFullMesh failed", "gloo", "UCX ERROR", "UCX  ERROR", "An error occurred in MPI_"),
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"^There are not enough slots available in the system to satisfy the (?P<count>\d{1,4})",
        FailureCause.BAD_VALUE,
        "mpirun was told to start {count} ranks, and its hosts have fewer slots.",
        "Name each Spark with slots=1 (mpirun -H SPARK1:1,SPARK2:1, or its hostfile), and as many ranks as Sparks.",
        needle="There are not enough slots available",
        on="command",
    ),
    failure_rule(
        r"^mpirun has detected an attempt to run as root",
        FailureCause.BAD_VALUE,
        "mpirun does not start as root.",
        "Add --allow-run-as-root to mpirun, or set env.OMPI_ALLOW_RUN_AS_ROOT: 1 and env.OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: 1.",
        needle="attempt to run as root",
        on="command",
    ),
    failure_rule(
        r"^Primary job +terminated normally, but \d+ process(?:es)? returned|^mpirun (?:noticed that|detected that one or more) process",
        FailureCause.WORKER_LOST,
        "A rank of this model ended, by the word of mpirun.",
        "The lines of that rank before this one, or its own log, say why.",
        needle=("Primary job ", "mpirun noticed that", "mpirun detected that"),
        weight=FailureWeight.DYING,
    ),
    failure_rule(
        r"^Root Cause \(first observed failure\):",
        FailureCause.WORKER_LOST,
        "A rank of this model ended, as torch's launcher reports.",
        "The lines of that rank before this one, or its own log, say why.",
        needle="Root Cause (first",
        weight=FailureWeight.DYING,
    ),
    failure_rule(
        r"\b[Gg]loo\b.{0,200}?[\] ]Connection closed by peer \[(?P<peer>[^\]]*)\]",
        FailureCause.WORKER_LOST,
        "The other node ({peer}) closed the connection.",
        "It ended first: its own log says why.",
        needle="Connection closed by peer",
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        r"\b[Gg]loo\b\S{0,120}/transport/\S{1,80} (?P<what>(?:Read|Write) error .{1,120}|(?:readv?|writev?|recv|send) .{1,60}: .{1,80}"
        r"|.{0,80}(?:Connection reset by peer|Broken pipe|Software caused connection abort|Socket closed).{0,40})",
        FailureCause.WORKER_LOST,
        "The connection to another rank broke: {what}",
        f"It ended first, or the link between the nodes failed. {_CHECK_OTHER_NODE}",
        needle="/transport/",
        weight=FailureWeight.DEATH,
    ),
    # A client of a server at work says so, too.
    failure_rule(
        r"Connection closed by peer \[(?P<peer>[^\]]*)\]",
        FailureCause.WORKER_LOST,
        "Another process ({peer}) closed the connection.",
        "It ended first: its own log says why.",
        needle="Connection closed by peer",
        weight=FailureWeight.LOST,
    ),
)
