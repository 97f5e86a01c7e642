"""What the documentation says of each row of a generated table that the code itself does not say.

`tests/unit/test_docs.py` fails where a row has no words here, and where words have no row.
"""

from __future__ import annotations

from sparkctl.engines.lint import LintRule
from sparkctl.errors import ExitCode
from sparkctl.model.finding import FindingKind as Kind
from sparkctl.model.verdict import FailureCause

EXIT_CODES: dict[int, str] = {
    ExitCode.DONE: "done",
    ExitCode.ENGINE_FAILED: "the engine failed",
    ExitCode.USAGE: "wrong usage, or an invalid file",
    ExitCode.UNREACHABLE: "a node is unreachable or not trusted",
    ExitCode.TIMED_OUT: "timed out; the engine may still be running",
    ExitCode.UNHEALTHY: "`doctor` found a problem; `status --check` an instance that is neither ready nor starting, or a switch left unfinished; `check --strict` a wrong answer; `up` or `say` got an answer that proves nothing; or `down`, `free` or `switch` stopped the model and something of it is left",
    ExitCode.REFUSED: "refused; nothing was changed",
    ExitCode.INTERRUPTED: "interrupted; `up` stops watching and the engine keeps running; a `switch` in the middle is left to "
    "`resume` and `abort`",
    129: "as 130: the terminal was closed (SIGHUP)",
    70: "a defect in sparkctl; `SPARKCTL_DEBUG=1` shows where",
    74: "the output could not be written; or the command succeeded, but the recording (`--record`) could not be written",
    141: "the reader of stdout went away (for example `| head`)",
}

# The page that explains a verb.
VERB_PAGES: dict[str, str] = {
    "init": "first-evening.md",
    "doctor": "findings.md",
    "setup": "setup.md",
    "profiles": "profiles.md",
    "plan": "memory-fit.md",
    "pull": "images-and-models.md",
    "images": "images-and-models.md",
    "models": "images-and-models.md",
    "up": "first-evening.md",
    "switch": "switching.md",
    "restart": "switching.md",
    "resume": "switching.md",
    "abort": "switching.md",
    "status": "first-evening.md",
    "top": "numbers.md",
    "metrics": "scripting.md",
    "logs": "verdicts.md",
    "diagnose": "verdicts.md",
    "tunnel": "setup.md",
    "bench": "bench.md",
    "check": "findings.md",
    "endpoints": "first-evening.md",
    "say": "speech.md",
    "drop-caches": "on-a-spark.md",
    "guard": "guard.md",
    "down": "switching.md",
    "free": "switching.md",
    "shell": "on-a-spark.md",
    "exec": "on-a-spark.md",
    "sync": "two-sparks.md",
    "history": "verdicts.md",
    "demo": "first-evening.md",
    "help": "first-evening.md",
    "completion": "first-evening.md",
}

_LESS_MEMORY = "Lower the memory share, if the verdict names one, or stop what else holds memory."
_FINISH_DOWNLOAD = "Finish the download; `ls -l` the model's directory on the node."

CAUSE_REMEDIES: dict[FailureCause, str] = {
    FailureCause.STARTUP_MEMORY_CHECK: "Drop the page cache, stop what else holds memory, or lower the memory share.",
    FailureCause.WEIGHTS_DO_NOT_FIT: "Raise the memory share if the node has room; else use a smaller quantization or two Sparks.",
    FailureCause.MEMORY_CHANGED_DURING_START: "Start it again, with nothing else starting or stopping on the node.",
    FailureCause.KV_CACHE_TOO_SMALL: "Lower the context length, or raise the memory share.",
    FailureCause.DRAFT_WORKSPACE: "Lower the memory share, or draft fewer tokens.",
    FailureCause.CUDA_OUT_OF_MEMORY: _LESS_MEMORY,
    FailureCause.HOST_OOM_KILL: _LESS_MEMORY,
    FailureCause.HOST_MEMORY: "Lower the memory share, drop the page cache; for RDMA raise the memlock limit.",
    FailureCause.GUARD_STOPPED: "Lower the field that the verdict names, or stop what else holds memory. See [the guard](guard.md).",
    FailureCause.UNKNOWN_FLAG: "Correct or remove the flag; `sparkctl profiles check` names near ones.",
    FailureCause.BAD_VALUE: "Correct the value that the verdict quotes.",
    FailureCause.TRUST_REMOTE_CODE: "If you trust the model's author: `args: {trust-remote-code: true}`.",
    FailureCause.ATTENTION_BACKEND: "Set another `attention-backend`, or leave it out so that the engine chooses.",
    FailureCause.PORT_IN_USE: "Stop the other process (`ss -ltnp` on the node shows it), or choose another `port`.",
    FailureCause.MODEL_NOT_FOUND: "Correct `model.path`, or the mount that should provide it.",
    FailureCause.HUB_UNREACHABLE: "Get the model onto the node first (`sparkctl pull`), or give the container access to the hub.",
    FailureCause.MODEL_GATED: "Accept the licence on the model's page and set `HF_TOKEN`.",
    FailureCause.MODEL_FILES: f"{_FINISH_DOWNLOAD} Or correct `model.path` or the quantization.",
    FailureCause.TRUNCATED_WEIGHTS: "Download the file that the verdict names again.",
    FailureCause.MODEL_UNSUPPORTED: "Use a newer image of the engine.",
    FailureCause.DRAFT_MISMATCH: "Use the draft model that was made for exactly this model, or draft without one.",
    FailureCause.IMAGE_MISSING: "`sparkctl pull` gets or builds it; log in to its registry if it asks; `sparkctl sync` copies it from the other Spark.",
    FailureCause.IMAGE_ARCH: "Use an image that is built for linux/arm64.",
    FailureCause.GPU_RUNTIME_MISSING: "Install nvidia-container-toolkit on the node; after a driver update, reboot.",
    FailureCause.DRIVER_MISMATCH: "Update the node (DGX OS), or use an image built for its CUDA version.",
    FailureCause.BROKEN_IMAGE: "Use another tag of the image, or install the missing version when it is built.",
    FailureCause.KERNEL_UNSUPPORTED: "Choose another backend (attention, MoE, FP4), or an image built for sm_121.",
    FailureCause.JIT_FAILED: "Use an image with compilers (devel), or another backend; the compiler's error is in the log.",
    FailureCause.GPU_FAULT: "Use a newer image; without CUDA graphs and with `CUDA_LAUNCH_BLOCKING: 1` the log names the kernel.",
    FailureCause.DISK_FULL: "Free space (`df -h`, `docker system df`); for shared memory raise `container.shm_size`.",
    FailureCause.PERMISSION: "Correct the owner of the mounted directory; for Docker: `sudo usermod -aG docker $USER`.",
    FailureCause.DOCKER_REFUSED: "Do what Docker's own message asks; the verdict quotes it.",
    FailureCause.NCCL: "Check the cable: `sparkctl doctor --fabric`.",
    FailureCause.WORKER_LOST: "Read the log of the rank that the verdict names; start the model again.",
    FailureCause.RAY: "Follow the verdict's remedy; `ray status` in the head's container shows which Sparks joined.",
    FailureCause.ENGINE_BUG: "Use the workaround or the newer image that the verdict names.",
    FailureCause.WEDGED: "`sparkctl down`, then `up`; if it happens again, read the log of the run before (`sparkctl history`).",
    FailureCause.CRASHED: "Read the log around the quoted line.",
    FailureCause.KILLED: "Ask who killed it; `sparkctl doctor` shows whether the kernel's log could be read.",
    FailureCause.EXITED: "Read the last lines of the log.",
    FailureCause.STOPPED_BY_OTHERS: "Ask who stopped it, then start it again.",
    FailureCause.TIMED_OUT: "Raise the phase's limit in `start.timeouts`, or read the log of the phase that took so long.",
}

# A line by which a log shows the cause. The guard's word, and a container that ended with 0, stand in no log.
CAUSE_EXAMPLES: dict[FailureCause, str] = {
    FailureCause.STARTUP_MEMORY_CHECK: "ValueError: Free memory on device cuda:0 (93.47/119.7 GiB) on startup is less than desired GPU memory utilization (0.9, 107.73 GiB).",
    FailureCause.WEIGHTS_DO_NOT_FIT: "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: mem_fraction_static=0.5",
    FailureCause.MEMORY_CHANGED_DURING_START: "AssertionError: Error in memory profiling. Initial free memory 93.4 GiB, current free memory 101.2 GiB.",
    FailureCause.KV_CACHE_TOO_SMALL: "ValueError: No available memory for the cache blocks.",
    FailureCause.DRAFT_WORKSPACE: "Exception: Capture EAGLE draft cuda graph failed: CUDA out of memory.",
    FailureCause.CUDA_OUT_OF_MEMORY: "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    FailureCause.HOST_OOM_KILL: "[ 8123.456789] Out of memory: Killed process 4711 (VLLM::EngineCor) total-vm:198000000kB, anon-rss:96000000kB",
    FailureCause.HOST_MEMORY: "OSError: [Errno 12] Cannot allocate memory",
    FailureCause.UNKNOWN_FLAG: "vllm: error: unrecognized arguments: --max-model-length 8192",
    FailureCause.BAD_VALUE: "vllm: error: argument --dtype: invalid choice: 'fp4' (choose from 'auto', 'half')",
    FailureCause.TRUST_REMOTE_CODE: "ValueError: The repository /m contains custom code which must be executed to correctly load the model.",
    FailureCause.ATTENTION_BACKEND: "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(head_size=576)",
    FailureCause.PORT_IN_USE: "OSError: [Errno 98] Address already in use",
    FailureCause.MODEL_NOT_FOUND: "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/models/qwen'.",
    FailureCause.HUB_UNREACHABLE: "huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub",
    FailureCause.MODEL_GATED: "huggingface_hub.errors.GatedRepoError: 403 Client Error. Cannot access gated repo for url https://huggingface.co/org/model/resolve/main/config.json.",
    FailureCause.MODEL_FILES: "OSError: /models/qwen does not appear to have a file named config.json.",
    FailureCause.TRUNCATED_WEIGHTS: "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered",
    FailureCause.MODEL_UNSUPPORTED: "ValueError: Model architectures ['Qwen9ForCausalLM'] are not supported for now.",
    FailureCause.DRAFT_MISMATCH: "RuntimeError: draft model vocab type must match target model to use speculation",
    FailureCause.IMAGE_MISSING: "docker: Error response from daemon: manifest for vllm/vllm-openai:v9 not found: manifest unknown",
    FailureCause.IMAGE_ARCH: "exec /usr/local/bin/vllm: exec format error",
    FailureCause.GPU_RUNTIME_MISSING: 'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
    FailureCause.DRIVER_MISMATCH: "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.1, please update your driver to a newer version",
    FailureCause.BROKEN_IMAGE: "ImportError: /usr/lib/_C.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEa",
    FailureCause.KERNEL_UNSUPPORTED: "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device",
    FailureCause.JIT_FAILED: "RuntimeError: Ninja build failed. Ninja output:",
    FailureCause.GPU_FAULT: "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    FailureCause.DISK_FULL: "OSError: [Errno 28] No space left on device",
    FailureCause.PERMISSION: "PermissionError: [Errno 13] Permission denied: '/models/qwen/config.json'",
    FailureCause.DOCKER_REFUSED: 'docker: Error response from daemon: Conflict. The container name "/vllm" is already in use by container "3f9a".',
    FailureCause.NCCL: "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error, NCCL version 2.28.3",
    FailureCause.WORKER_LOST: "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (192.168.100.10, 29501).",
    FailureCause.RAY: "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    FailureCause.ENGINE_BUG: "RuntimeError: Model does not support EAGLE3 interface but aux_hidden_state_outputs was requested",
    FailureCause.WEDGED: "[2026-05-01 10:10:00 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
    FailureCause.CRASHED: "KeyError: 'layers.0.mlp'",
    FailureCause.KILLED: "/run.sh: line 12:    17 Killed                  vllm serve /models/qwen",
    FailureCause.STOPPED_BY_OTHERS: "subprocess.CalledProcessError: Command '['vllm', 'serve']' died with <Signals.SIGTERM: 15>.",
    FailureCause.TIMED_OUT: "TimeoutError: Timed out waiting for engine core processes to start.",
}

FINDINGS: dict[Kind, tuple[str, str]] = {
    Kind.STUCK_CLOCK: (
        "For 20 s the SM clock is under 45 % of its maximum (it ends at 55 %), with utilisation of at least 50 %, under 35 W, under "
        "80 °C and no event reason.",
        "Shut down, unplug the power adapter from the wall *and* the Spark for a minute. A reboot does not help.",
    ),
    Kind.THERMAL: (
        "The driver gives a thermal event reason and its counter grows.",
        "Improve the air flow; `sudo nvidia-smi -lgc 0,2100` (undo: `-rgc`).",
    ),
    Kind.BUSY_WAIT: (
        "For a minute: normal clock, 90 % busy, under 30 W, and no engine makes tokens. It waits for the other Spark, or hangs.",
        "Read the logs of both nodes; `down`, then `up`.",
    ),
    Kind.STALLED: (
        "For three minutes requests run or wait, and neither tokens, nor prompts, nor the KV cache move, although the metrics answer.",
        "Read the logs of all its Sparks; `down`, then `up`.",
    ),
    Kind.DRAFTS_REJECTED: (
        "Accept length of at most 1.02 over at least 40 steps, for 10 s; or for three minutes under 15 % of drafts and under 1.5 tokens "
        "a step. A note where drafts need no model (n-gram).",
        "Use the draft model of this very checkpoint; check how its layers are quantized; try it without drafts.",
    ),
    Kind.PREFIX_CACHE: (
        "After the prefix cache had served 50,000 tokens, 100,000 tokens of long prompts were computed with under a tenth found in it.",
        "Fewer sessions at once, or more KV cache; a client must not change the beginning of its prompt.",
    ),
    Kind.PREFILL_STARVES: (
        "Requests that were generating get no token for 20 s while a prompt is read; or for 30 s one token in twenty comes 3 s after the "
        "one before, beside long prompts.",
        "Smaller pieces of prompts: `max-num-batched-tokens`; SGLang: `chunked-prefill-size`, `enable-mixed-chunk`.",
    ),
    Kind.KV_FULL: (
        "For 30 s the KV cache is at 90 % or more and the engine evicts running requests.",
        "Fewer requests at once (`max-num-seqs`, `max-running-requests`), a shorter context, or more KV cache.",
    ),
    Kind.SWAP: (
        "Swap in use grew in each quarter of the last minute (one burst during a load is normal). `doctor`: over 1 GiB is in use.",
        "Stop something, or give the engine less memory.",
    ),
    Kind.PAGE_CACHE: (
        "An engine loads with under 8 GiB free and over 8 GiB of page cache.",
        "`sparkctl drop-caches --node NODE`",
    ),
    Kind.IDLE_FUNCTION: (
        "For 30 s one function of a ConnectX port moves 1 Gb/s or more and the other one nothing.",
        "Give both an address; name both in `NCCL_IB_HCA`.",
    ),
    Kind.FABRIC_ROUTE: (
        "A cable is plugged in, but its functions have no IPv4 network, or the two Sparks have none in common.",
        "`sparkctl setup` gives them [addresses](setup.md#the-cable).",
    ),
    Kind.GID: (
        "`NCCL_IB_GID_INDEX` of a running container is not a RoCE v2 address of IPv4 on this node.",
        "Leave the variable out: NCCL 2.21 and later find the index.",
    ),
    Kind.RDMA_OFF: ("An instance on both Sparks has `NCCL_IB_DISABLE=1`.", "Remove the variable."),
    Kind.DISK: ("Under 20 GiB are free for Docker or the models (under 5: a problem).", "`docker system df`"),
    Kind.ORPHAN: (
        "For 30 s a process in no container and no service holds 1 GiB or more of the GPU's memory and its parent is gone; or its "
        "container is gone.",
        "If you do not know it: `sudo kill PID`.",
    ),
    Kind.RESTART_LOOP: (
        "Docker restarted a container within the last half hour. Three times, or *restarting* now, is a problem.",
        "Read its log; `docker update --restart=no`.",
    ),
    Kind.NOT_GENERATING: (
        "The engine is up and idle, and gave no token when asked for one.",
        "Read its log; `down`, then `up`.",
    ),
    Kind.ANSWERS: (
        "What a ready engine answers makes no sense or is not what was asked for: a known question, a stream, JSON, a tool call, "
        "max_tokens, the context, drafts of which every one is rejected.",
        "The finding has what was asked and what came; `sparkctl check NAME` asks again.",
    ),
    Kind.PARTNER: (
        "Of a model on several Sparks one part is ready and another runs nowhere, and all Sparks could be asked.",
        "`sparkctl down` it and start it again.",
    ),
    Kind.MIN_FREE: ("`vm.min_free_kbytes` reserves memory that no engine can have.", "The command that it prints."),
    Kind.SWAPPINESS: (
        "At this `vm.swappiness` the kernel swaps an engine out before it drops page cache.",
        "The command that it prints.",
    ),
    Kind.EARLYOOM: (
        "earlyoom is installed but not running, or by its arguments it acts too late.",
        "The line for `/etc/default/earlyoom` that it prints.",
    ),
    Kind.DIFFERENCE: (
        "Driver, kernel, DGX OS, Docker, toolkit or ConnectX firmware differ between the Sparks.",
        "Bring both to one release.",
    ),
    Kind.SETTINGS: (
        "`doctor`: the kernel settings as they are. A warning if a file will change one at the next restart.",
        "Correct the file that it names.",
    ),
    Kind.KHO: (
        "A fault of kernels with KHO keeps memory from every engine.",
        "Add `kho=off` to the kernel's command line, as it prints.",
    ),
    Kind.KERNEL: (
        "The kernel logged something that matters: see [what the kernel says](#what-the-kernel-says).",
        "As it prints; it depends on the line.",
    ),
    Kind.LAST_BOOT: (
        "The previous boot ended without a shutdown: a power cut, heat, a held button or a freeze.",
        "See the last line before it; leave more memory free, see the temperatures.",
    ),
    Kind.KNOWN_BAD: (
        "A version on this Spark has a fault that other owners reported.",
        "As it prints; `--json` names the source.",
    ),
    Kind.BELOW_REFERENCE: (
        "For three minutes the engine has generated a fifth less than the source of its profile measured, with as many requests and about as long a context.",
        "Compare the set-ups: `sparkctl profiles show NAME`. The usual reasons: a low clock, swap, rejected drafts, a checkpoint with another quantization.",
    ),
    Kind.SLOW_PATH: (
        "The engine uses a fallback (Marlin for FP4, for example) instead of the GPU's native arithmetic.",
        "Measure first: Marlin is no slower for NVFP4 on a GB10. An image built for 12.1a has native kernels.",
    ),
    Kind.VERSIONS: ("`doctor`: what is installed. Quote it in bug reports.", "—"),
    Kind.CONNECTION: (
        "`doctor`: whether SSH works, and what machine answered.",
        "What it prints; for a key: `ssh-copy-id`.",
    ),
    Kind.CLOCK: (
        "`doctor`: the node's clock differs from this machine's, so `logs --since` is off.",
        "On the node: `timedatectl set-ntp true`",
    ),
    Kind.MEMORY: ("`doctor`: memory that is available, and page cache.", "—"),
    Kind.DROP_CACHES: (
        "`doctor`: whether your user may drop the page cache.",
        "`sparkctl setup` adds the [line](setup.md#what-it-sets-up).",
    ),
    Kind.KERNEL_LOG: (
        "`doctor`: whether your user may read the kernel's log, since when, and how the previous boot ended.",
        "`sudo usermod -aG adm $USER` on the node, then log in again.",
    ),
    Kind.PYTHON: (
        "`doctor`: the node has no Python 3.8 or newer, so there are no live figures.",
        "`sudo apt install python3`",
    ),
    Kind.DOCKER: (
        "`doctor`: whether Docker answers your user.",
        "`sparkctl setup`, where your user is not in group docker.",
    ),
    Kind.GPU: (
        "`doctor`: whether Docker has the NVIDIA container toolkit.",
        "The `apt` and `nvidia-ctk` commands that it prints.",
    ),
    Kind.NVIDIA_SMI: (
        "`doctor`: `nvidia-smi` is missing or does not answer; GPU memory is not known.",
        "Check the driver on the node.",
    ),
    Kind.OPEN_SERVER: (
        "A model's server answers without a key, and this machine reaches it without SSH: so does everybody on that network. "
        "Only `doctor` tries this.",
        "In its profile: `args.host: 127.0.0.1`, and `sparkctl tunnel`. Or `api_key: generate`, where the engine keeps a key secret (vLLM, llama.cpp).",
    ),
    Kind.MODELS: ("`doctor`: the `models` directory of the config does not exist or cannot be read.", "`mkdir -p` it."),
    Kind.FABRIC: (
        "`doctor`: there is no cable; `--fabric`: what each lane between the Sparks carries.",
        "Plug the cable in at both ends, then `sparkctl doctor --fabric`.",
    ),
    Kind.RDMA: (
        "`doctor --fabric`: RDMA devices and GID indices; a device without a RoCE v2 address cannot be used by NCCL.",
        "Set the interface down and up again, as it prints.",
    ),
}

CONFIG_FIELDS: dict[str, str] = {
    "name": "what you call the Spark",
    "host": "host name, address, or an alias of `~/.ssh/config` (NVIDIA Sync's included); `local` if sparkctl runs on that Spark itself",
    "user": "SSH user",
    "port": "SSH port",
    "identity": "private key file",
    "jump": "host to jump through",
    "memory_bandwidth_gb_s": "specified memory bandwidth, for the estimate",
    "models": "directory of the models on the node",
    "fabric": "network interface of the link to the other Sparks, if the one that sparkctl finds is wrong; the other function of its "
    "port is used too",
    "known_hosts": "another file than `~/.ssh/known_hosts`",
}

_ERROR, _WARNING, _INFO = "error", "warning", "info"

LINT_RULES: dict[LintRule, tuple[str, str]] = {
    LintRule.PROFILE: (_ERROR, "the file itself: YAML, a key or a value"),
    LintRule.UNKNOWN_FLAG: (_ERROR, "the engine has no such flag"),
    LintRule.REMOVED_FLAG: (_ERROR, "an older version had the flag; this one does not"),
    LintRule.AMBIGUOUS_FLAG: (_ERROR, "several flags begin like this"),
    LintRule.ABBREVIATED_FLAG: (_INFO, "short for a longer flag; a new flag in another version can break it"),
    LintRule.DEPRECATED_FLAG: (
        _WARNING,
        "the engine still takes it, but has another one for it (info for an old spelling)",
    ),
    LintRule.BAD_CHOICE: (_ERROR, "the flag takes one of a list, and this is not on it"),
    LintRule.BAD_VALUE: (_ERROR, "the value is of the wrong kind"),
    LintRule.BAD_KEY: (_ERROR, "the flag's JSON has no such key"),
    LintRule.MISSING_VALUE: (_ERROR, "the flag needs a value"),
    LintRule.UNWANTED_VALUE: (_ERROR, "the flag takes no value"),
    LintRule.REPEATED_FLAG: (_WARNING, "the flag is given twice; the engine uses the last one"),
    LintRule.STAYS_ON: (
        _WARNING,
        "`false` leaves the flag out, and the engine's default is not off; the message names the flag that turns it off",
    ),
    LintRule.LOST_FLAGS: (
        _WARNING,
        "`command` is a shell with a script: no engine reads the flags of `args` behind it",
    ),
    LintRule.MISSING_FLAG: (_ERROR, "another flag must be set too (can be a warning or an info)"),
    LintRule.BAD_COMBINATION: (_ERROR, "two settings do not go together (can be a warning)"),
    LintRule.KNOWN_TRAP: (_WARNING, "a setting that is known to fail on this version"),
    LintRule.FAMILY_MISMATCH: (_WARNING, "the draft model is of another family than the model"),
    LintRule.MEMORY_SHARE: (_WARNING, "the memory share leaves too little for the rest of the machine"),
    LintRule.LONG_CONTEXT: (_INFO, "what a very long context costs"),
    LintRule.SLOW_DRAFTS: (_INFO, "owners measured such drafts slower than none; compare both in `top`"),
    LintRule.NO_METRICS: (_INFO, "without this flag the engine has no `/metrics`"),
    LintRule.CONTAINER_SETTING: (
        _WARNING,
        "a variable or an option of the container is known to hurt on a Spark, or the model is in no mount",
    ),
    LintRule.TIME_LIMIT: (_WARNING, "such a start took longer than the limit allows, by your own history"),
    LintRule.PATCHED_FLAG: (_INFO, "`patched_flags` names it, so it was not checked"),
    LintRule.ENGINE_VERSION: (_INFO, "the version is unknown or not in the catalogue; names the version used instead"),
}

_MEMORY = "`total`, `available`, `free`, `page_cache`, `swap_total`, `swap_free`, in bytes"

EVENT_NOTES: dict[str, str] = {
    "node": "`next_try` in seconds",
    "memory": f"`memory`: {_MEMORY}",
    "sample": "`sample`: fields of a node as in `top --json`; `boot`: the kernel's id of this boot; recordings only",
    "caches": "`before` and `after` as in `memory`; `proven`: the kernel counted the drop (null: it cannot tell)",
    "containers": "`known` is false where Docker did not say, and `detail` is why; recordings only",
    "numbers": "recordings only",
    "facts": "recordings only",
    "plan": "everything the container gets, secrets masked",
    "fit": "the sum that `plan` shows: `answer`, `parts`, `standing`, `floor`, `stops`, `largest`, `least`, `lacking`, `cautions`",
    "missing": "what of image and model a node lacks; from `plan`, `pull` and `up --pull`",
    "phase": "`step`: `name`, `done`, `total`, `fraction`; `expected_parts`: `phase`, `step`, `seconds` each; times in seconds",
    "log": '`lines`: `when`, `text`, `number`, `stream`, `cut`; `rank` ("0/2") where several ranks are shown; only in `logs --json`',
    "guard": "`at` by the node's clock; `available` and `free` in bytes, `rate` in bytes/s, `to_zero` in seconds",
    "guarded": "the instances that a guard on the node watches: none where no guard runs, null where it is not known; recordings only",
    "warning": "",
    "finding": "`check` is the [finding's](findings.md) name; `evidence` and `since` as in `top --json`",
    "moved": "`source`: a node; `done` and `total` in bytes, `rate` in bytes/s, `left` in seconds",
    "released": "bytes; `holders`: pairs of name and bytes; `kept`: name of a container that was not removed",
    "measuring": "a cell of a benchmark is being measured: `done` of its `requests` have ended; `tokens_per_second` by the engine's counters now",
    "domain": "a kind of text of `bench --by-domain` was measured, or failed; `result` has all of it",
    "cell": "a cell of a benchmark was measured; `result` has all of it, the other figures are its medians at hand",
    "switch-plan": "`plan`: `profile`, `instance`, `nodes` (head first), `changes` per node (`tenants` with `conflicts`: `memory`, `port`, "
    "`group`, `instance`, `name`, `nodes`; `starts`, `fit`, `available_after`), `stops`, `obstacles`, `hints` (how to get what is missing), "
    "`cautions`, `seconds`, `is_there`, "
    "`halves` (of `stops`: not whole, so they cannot be brought back), `rolls_back`, `unproved` (of `stops`: they gave no token yet, so a rollback waits for none)",
    "switch": "`proof` is null while the step goes on",
    "switch-found": "`view` of the journal on the node: `found` (`none`, `read`, `unreadable`), `journal` (`id`, `operator`, `since`, "
    "`step`, `instance`, `words`, `profile_hash`, `nodes`, `stops`, `old`, `rolls_back`, `timeout`, `keep_going`), `is_held`, `why`; "
    "recordings only",
    "setup-plan": "`steps`: `kind` (`docker-group`, `drop-caches`, `cable`, `ssh`, `undo`), `summary`, `changes` (`path`, `before`, `after`, `mode`; "
    "null: the file is not there)",
    "setup": "a step is done; `is_back`: it was taken back, and `detail` is why",
    "tunnel": "`state`: `open`, `lost` (no connection to the node), `refused` (nothing answers there), `closed`; `url` on this machine",
    "examined": "`doctor` has finished this node; only differences between nodes come later",
    "result": "also `schema` (1); `more_logs`: node and path for each other rank; `verdict`: `cause`, `confidence`, `summary`, `evidence` (`text`, "
    "`origin`, `line`), `remedy`, `field`, `edit` (`field`, `value`, `was`, `is_first_try`; null where no value is known), `again` (the "
    "command with the edit), `contributing` (lesser verdicts)",
}
