"""Failure rules for models that are not there or cannot be downloaded, as the hub's client and the libraries for HTTP report it."""

from __future__ import annotations

from sparkctl.engines.base import FailureWeight
from sparkctl.engines.log_rules import EXCEPTION_PREFIX, failure_rule
from sparkctl.model.verdict import FailureCause

_MODEL_PATH_FIELD = "model.path"
_TOKEN_FIELD = "env.HF_TOKEN"  # noqa: S105
_LICENCE_REMEDY = "Accept the model's licence on the hub and set env.HF_TOKEN to a token of that account."
_HUB_HOSTS = r"(?:huggingface\.co|hf\.co|hf-mirror\.com|modelscope\.cn)"
# A host of this name is another container, this machine, or the other node: no hub.
_OTHER_HOST = r"(?!localhost|0\.0\.0\.0|127\.|10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|\[|host\.docker\.internal|[\w-]{1,80}(?:['\":/ ]|$))"
_PROVIDE_MODEL = "Give the container a way to the hub, or download the model beforehand and mount it."
# What clients of HTTP say of a server that they did not reach, with its host where they name it.
_HTTP_FAILURE = (
    rf"HTTPS?ConnectionPool\(host='{_OTHER_HOST}(?P<pool>[^']{{1,120}})'|HTTPS(?:Connection) object at"
    rf"|\b(?:aiohttp\.client_exceptions\.)?ClientConnector\w{{0,20}}: Cannot connect to host {_OTHER_HOST}(?P<client>[^\s:]{{1,120}})"
    r"|urlopen error "
    rf"|(?:[Cc]ould not|[Ff]ailed to|unable to) resolve(?: host)?(?: address)?:? '?{_OTHER_HOST}(?P<name>[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{1,6}})"
    rf"|Failed to connect to {_OTHER_HOST}(?P<curl>[^\s:]{{1,120}}) port \d"
    rf"|error sending request for url \(https?://{_OTHER_HOST}(?P<rust>[^/)]{{1,120}})"
    rf"|(?:Get|Head|Put|Post) \"https?://{_OTHER_HOST}(?P<go>[^/\"]{{1,120}})[^\"]{{0,400}}\": (?:dial tcp|net/http|EOF|context deadline|read tcp)"
)

HUB_FAILURES = (
    failure_rule(
        r"\bpip\._vendor\.\S{1,80}?\.(?P<kind>\w{1,40}(?:Error|Timeout)): (?:.{0,80}host='(?P<host>[^']{1,120})'.{0,40}?: )?(?P<what>.{1,120})",
        FailureCause.BROKEN_IMAGE,
        "The build of an image failed: pip lost its connection[ to {host}] ({what}).",
        "Build again; on a slow line with env PIP_DEFAULT_TIMEOUT=100 in the build.",
        needle="pip._vendor.",
        on="image",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*Repo id must (?:be in the form|use alphanumeric)[^:]*: '(?P<path>[^']*)'",
        FailureCause.MODEL_NOT_FOUND,
        "There is no {path} in the container.",
        "Correct model.path, or the mount that should bring it in.",
        needle="Repo id must",
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(  # the same, cut off
        rf"{EXCEPTION_PREFIX}Repo id must (?:be in the form|use alphanumeric)",
        FailureCause.MODEL_NOT_FOUND,
        "There is no such model or directory in the container.",
        "Correct model.path, or the mount that should bring it in.",
        needle="Repo id must",
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:Repository Not Found for url: (?P<url>\S+?)\.?(?:\s|$)|is not a local folder and is not a valid model "
        rf"identifier)|^(?:[\w.]+\.)?(?:RepositoryNotFoundError|RevisionNotFoundError): ",
        FailureCause.MODEL_NOT_FOUND,
        "The hub has no such model[ ({url})].",
        "Correct model.path; a private model needs env.HF_TOKEN.",
        needle=(
            "Repository Not Found for url:",
            "is not a local folder and is not a valid model identifier",
            "positoryNotFoundError",
            "visionNotFoundError",
        ),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"^(?:[\w.]+\.)?GatedRepoError: |{EXCEPTION_PREFIX}.*(?:Cannot access gated repo|You are trying to access a gated repo"
        r"|Access to model (?P<model>\S+) is restricted)|^Access to model (?P<named>\S+) is restricted"
        r"|^Cannot access gated repo",
        FailureCause.MODEL_GATED,
        "The model hub denies you access to this model[ ({model})][ ({named})].",
        _LICENCE_REMEDY,
        needle=(
            "Access to model",
            "Cannot access gated repo",
            "GatedRepoError:",
            "You are trying to access a gated repo",
        ),
        on=_TOKEN_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?P<status>401|403) Client Error.*(?:huggingface|hf\.co|hf-mirror|Hugging)",
        FailureCause.MODEL_GATED,
        "The model hub refused the download ({status}).",
        _LICENCE_REMEDY,
        needle=" Client Error",
        on=_TOKEN_FIELD,
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*\b(?P<status>429) (?:Client Error|Too Many Requests).*{_HUB_HOSTS}",
        FailureCause.HUB_UNREACHABLE,
        "The model hub accepts no more requests from this address for now ({status}).",
        "Wait some minutes, then start it again; with env.HF_TOKEN set the hub allows more. Or download the model beforehand "
        "and mount it.",
        needle=("429 Client Error", "429 Too Many Requests"),
        on=_TOKEN_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*\b(?P<status>5\d\d) (?:Server Error|Internal Server|Bad Gateway|Service Unavailable|Gateway Time).*{_HUB_HOSTS}",
        FailureCause.HUB_UNREACHABLE,
        "The model hub failed ({status}).",
        "Start it again later, or download the model beforehand and mount it.",
        needle=("Bad Gateway", "Gateway Time", "Internal Server", "Server Error", "Service Unavailable"),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"^(?=.*(?:[Tt]imed out|Timeout)){EXCEPTION_PREFIX}.*?(?P<host>{_HUB_HOSTS})",
        FailureCause.HUB_UNREACHABLE,
        "The model hub did not answer in time ({host}).",
        "Give the container network access to the hub and start it again (what is downloaded stays), or download the model beforehand "
        "and mount it.",
        needle=("Timeout", "imed out"),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:CERTIFICATE_VERIFY_FAILED|certificate verify failed|x509: certificate|SSLCertVerificationError)",
        FailureCause.HUB_UNREACHABLE,
        "The hub's certificate was refused: something in between, such as a proxy, replaces it with its own.",
        "Mount the proxy's certificate, and name it in env.SSL_CERT_FILE and env.REQUESTS_CA_BUNDLE; or download the model beforehand "
        "and mount it.",
        needle=(
            "CERTIFICATE_VERIFY_FAILED",
            "certificate verify failed",
            "x509: certificate",
            "SSLCertVerificationError",
        ),
        on="env.SSL_CERT_FILE",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"^(?:[\w.]+\.)?(?:LocalEntryNotFoundError|OfflineModeIsEnabled): "
        rf"|{EXCEPTION_PREFIX}.*We couldn't connect to '(?P<hub>[^']*)' to load"
        rf"|{EXCEPTION_PREFIX}.*(?:outgoing traffic has been disabled|Cannot reach (?P<url>https?://\S+?):? offline mode)",
        FailureCause.HUB_UNREACHABLE,
        "The model is not on the node, and the hub[ {hub}][ {url}] could not be asked for it.",
        "Download the model beforehand and mount it, or give the container network access to the hub (HF_HUB_OFFLINE unset).",
        needle=(
            "Cannot reach",
            "LocalEntryNotFoundError",
            "OfflineModeIsEnabled",
            "We couldn't connect to '",
            "outgoing traffic has been disabled",
        ),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:The (?:handshake|read|write) operation timed out|Name or service not known"
        rf"|Temporary failure in name resolution|Network is unreachable"
        r"|Max retries exceeded with url: (?P<url>\S*(?:huggingface|hf\.co|/api/models|/resolve/)\S*)"
        r"|Failed to resolve '(?P<host>[^']*)')",
        FailureCause.HUB_UNREACHABLE,
        "The container could not reach the network[ ({host})].",
        _PROVIDE_MODEL,
        needle=(
            "operation timed out",  # Python's words for TLS alone: a server outside
            "Name or service not known",
            "Temporary failure in name resolution",
            "Network is unreachable",
            "Max retries exceeded with url: ",
            "Failed to resolve '",
        ),
        on=_MODEL_PATH_FIELD,
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"^(?:[\w.]+\.)?(?:Remote)?EntryNotFoundError: .*?for url: \S+/resolve/[^/\s]+/(?P<file>[^\s?]+?)\.?(?:\s|$)"
        r"|^(?:[\w.]+\.)?(?:Remote)?EntryNotFoundError: ",
        FailureCause.MODEL_FILES,
        "The hub's repository of this model has no such file[: {file}].",
        "Correct model.path: it may be a GGUF or an adapter without a config.json of its own, or another revision.",
        needle="EntryNotFoundError: ",
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*\b404 (?:Client Error|Not Found)\b.{{0,80}}for url:? '?\S*?{_HUB_HOSTS}"
        rf"|{EXCEPTION_PREFIX}Client error '404 Not Found' for url 'https?://{_OTHER_HOST}"
        rf"|{EXCEPTION_PREFIX}Incorrect path_or_model_id: '(?P<path>[^']{{1,400}})'"
        rf"|{EXCEPTION_PREFIX}(?:pull model manifest: file does not exist|model '(?P<tag>[^']{{1,200}})' not found)"
        r"|^(?:[\w.]+\.)?NotExistError: .{0,300}not exist",
        FailureCause.MODEL_NOT_FOUND,
        "There is no such model[: {path}][: {tag}].",
        "Correct model.path (or its tag), or the mount that should bring it in.",
        needle=(
            "404 Client Error",
            "404 Not Found",
            "Incorrect path_or_model_id: ",
            "file does not exist",
            "' not found",
            "NotExistError: ",
        ),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}Client error '(?P<status>40[13]) [^']{{1,40}}' for url 'https?://{_OTHER_HOST}"
        rf"|{EXCEPTION_PREFIX}.{{0,120}}?HTTP status client error \((?P<rust>40[13]) [\w ]{{1,40}}\) for url \(https?://{_OTHER_HOST}"
        r"|HfHubHTTPError: (?P<code>40[13]) |enable access to public gated repositories"
        rf"|{EXCEPTION_PREFIX}.{{0,80}}(?:Invalid (?:user )?token\b(?! id)|[Tt]oken is required|Invalid credentials in Authorization)"
        r"|^(?:[\w.]+\.)?LocalTokenNotFoundError: ",
        FailureCause.MODEL_GATED,
        "The model hub refused the download[ ({status})][ ({code})][ ({rust})]: the token is missing, wrong, or may not read this model.",
        _LICENCE_REMEDY,
        needle=(
            *("Client error '40", "HTTP status client error (40"),
            "HfHubHTTPError: 40",
            "enable access to public gated repositories",
            "nvalid token",
            "nvalid user token",
            "oken is required",
            "Invalid credentials in Authorization",
            "LocalTokenNotFoundError: ",
        ),
        on=_TOKEN_FIELD,
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"(?:{EXCEPTION_PREFIX}|^(?:curl|wget|git|fatal|W\d+|E\d+)\b).*?(?:{_HTTP_FAILURE})",
        FailureCause.HUB_UNREACHABLE,
        "The container could not reach the network[ ({pool})][ ({client})][ ({name})][ ({curl})][ ({go})][ ({rust})].",
        _PROVIDE_MODEL,
        needle=(
            "ConnectionPool(host='",
            "HTTPSConnection object at",
            "ClientConnector",
            "urlopen error ",
            "httpx.Connect",
            "httpcore.Connect",
            " resolve ",
            "Failed to connect to ",
            "error sending request for url (http",
            '": dial tcp',
            '": net/http',
            '": EOF',
            '": context deadline',
            '": read tcp',
        ),
        on=_MODEL_PATH_FIELD,
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"\bMax retries reached\. Download failed\.",
        FailureCause.HUB_UNREACHABLE,
        "FlashInfer could not download a compiled kernel (a cubin).",
        "Give the container a way to the network at its first start and keep ~/.cache/flashinfer in a mount, or take an image that holds "
        "flashinfer-cubin.",
        needle="Max retries reached. Download failed.",
        on="mounts",
        weight=FailureWeight.LOST,
        warning=True,
    ),
    failure_rule(
        r"^(?:The|Error: .{0,200}?\bThe) model you are (?:attempting to pull|pulling) requires a newer version of Ollama",
        FailureCause.MODEL_UNSUPPORTED,
        "This version of Ollama is too old for the model.",
        "Take a newer image of Ollama, then pull again.",
        needle="requires a newer version of Ollama",
        on="image",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"\bfailed to get manifest at (?P<url>https?://[^\s/]{1,120})",
        FailureCause.HUB_UNREACHABLE,
        "The model hub could not be asked for the model ({url}).",
        f"{_PROVIDE_MODEL} Where it is reached, the repository or the quantization behind its colon is misspelt.",
        needle="failed to get manifest at http",
        on=_MODEL_PATH_FIELD,
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"HarmonyError: invalid tiktoken vocab file",
        FailureCause.MODEL_FILES,
        "The vocabulary of gpt-oss (harmony, tiktoken) that lies there is none: a cut download, or a page in its place.",
        "Download o200k_base.tiktoken again into the directory that env.TIKTOKEN_ENCODINGS_BASE names; without one, empty the container's "
        "cache.",
        needle="HarmonyError",
        on="env.TIKTOKEN_ENCODINGS_BASE",
    ),
    failure_rule(
        r"HarmonyError: error downloading|failed to download or load vocab file",
        FailureCause.HUB_UNREACHABLE,
        "The vocabulary of gpt-oss (harmony, tiktoken) could not be downloaded: without it chat requests fail.",
        "Give the container a way to the network, or put o200k_base.tiktoken into a mounted directory and name it in "
        "env.TIKTOKEN_ENCODINGS_BASE.",
        needle=("HarmonyError", "failed to download or load vocab file"),
        on="env.TIKTOKEN_ENCODINGS_BASE",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?!.*\(os error (?:13|28|122)\))"
        r".*(?:CAS service error|error occurred while downloading using `hf_transfer`|too many failures in parallel"
        r"|IncompleteRead\(|max retries exceeded: unexpected EOF|Distant resource does not seem to be on)"
        rf"|^(?:[\w.]+\.)?(?:ChunkedEncodingError|ProtocolError): |{EXCEPTION_PREFIX}\(ProtocolError\('Connection aborted",
        FailureCause.HUB_UNREACHABLE,
        "The download from the hub broke off.",
        "Start it again: what is downloaded stays. Or download the model beforehand (sparkctl pull) and mount it.",
        needle=(
            "CAS service error",
            "hf_transfer`",
            "too many failures in parallel",
            "IncompleteRead(",
            "unexpected EOF",
            "Distant resource",
            "ChunkedEncodingError: ",
            "ProtocolError",
        ),
        on=_MODEL_PATH_FIELD,
        weight=FailureWeight.LIKELY,
    ),
)
