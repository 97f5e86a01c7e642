"""Failure rules for models that cannot be read, as transformers, safetensors, tokenizers and TensorRT report it."""

from __future__ import annotations

from sparkctl.engines.base import FailureWeight
from sparkctl.engines.log_rules import EXCEPTION_PREFIX, failure_rule
from sparkctl.model.verdict import ChangeDirection, FailureCause

_MODEL_PATH_FIELD = "model.path"
# What Python's reader of JSON says, before the place.
JSON_FAULT = (
    r"(?:Expecting (?:value|property name|',' delimiter|':' delimiter)|Extra data|Unterminated string starting at"
    r"|Invalid (?:control character|\\escape)).{0,60}?"
)
SETTINGS_READER = "(?:argparse|arg_utils|server_args)"  # the file of the code that reads the command line
_DOWNLOAD_REMEDY = "Download it again (hf download checks every file), then start it again."

_CORRUPT_FAILURES = (
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*deserializing header: .*(?:[Hh]eader ?[Tt]oo ?[Ll]arge|invalid JSON|InvalidHeaderDeserialization"
        r"|InvalidHeaderStart|invalid UTF-8)",
        FailureCause.MODEL_FILES,
        "A weight file is not a safetensors file: a Git LFS pointer, an error page, or another format.",
        f"Look at the file's beginning (head -c 200). {_DOWNLOAD_REMEDY}",
        needle="deserializing header: ",
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*?(?:Error while deserializing header: (?P<what>.*)|MetadataIncompleteBuffer|InvalidHeaderLength"
        r"|HeaderTooSmall|incomplete metadata, file not fully covered)"
        r"|^Error while deserializing header: (?P<said>.*)",
        FailureCause.TRUNCATED_WEIGHTS,
        "A weight file is cut short[: {what}][: {said}].",
        _DOWNLOAD_REMEDY,
        needle=(
            "Error while deserializing header:",
            "HeaderTooSmall",
            "InvalidHeaderLength",
            "MetadataIncompleteBuffer",
            "incomplete metadata, file not fully covered",
        ),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:PytorchStreamReader failed reading (?:zip archive|file)|unexpected EOF, expected (?P<more>\d+) more bytes"
        r"|Consistency check failed: file should be of size (?P<size>\d+)|file is (?:truncated|corrupted))",
        FailureCause.TRUNCATED_WEIGHTS,
        "A weight file is cut short[: {more} bytes are missing][: it should hold {size} bytes].",
        _DOWNLOAD_REMEDY,
        needle=(
            "Consistency check failed: file should be of size",
            "PytorchStreamReader failed reading",
            "file is truncated",
            "file is corrupted",
            "unexpected EOF, expected",
        ),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*?(?:Tried to load weights of size (?:torch\.Size\()?(?P<got>\[[\d, ]{{1,60}}\])\)? ?to a parameter of size "
        r"(?:torch\.Size\()?(?P<want>\[[\d, ]{1,60}\])"
        r"|size mismatch for (?P<weight>[\w.]{1,120}): copying a param with shape (?:torch\.Size\()?(?P<has>\[[\d, ]{1,60}\])\)? from checkpoint,"
        r" the shape in current model is (?:torch\.Size\()?(?P<needs>\[[\d, ]{1,60}\]))",
        FailureCause.MODEL_FILES,
        "A weight[ ({weight})] of the checkpoint has another shape than the model's configuration makes[: {got} in place of {want}]"
        "[: {has} in place of {needs}].",
        "Take the config.json that belongs to these weights, or a newer image if the model is new; of a draft model, the one made for this model.",
        needle=("Tried to load weights of size", "size mismatch for "),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*Cannot find any model weights(?: with [`'](?P<path>[^`']*))?",
        FailureCause.MODEL_FILES,
        "The model's directory[ ({path})] holds no weights.",
        "Finish the download: only the small files are there.",
        needle="Cannot find any model weights",
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*Invalid repository ID or local directory specified: '(?P<path>[^']*)'",
        FailureCause.MODEL_FILES,
        "{path} is not a model: it has no config.json that the engine can read.",
        "Correct model.path, or finish the download.",
        needle="Invalid repository ID",
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*Unrecognized model in (?P<path>\S+?)\. ",
        FailureCause.MODEL_FILES,
        "The config.json in {path} is missing, or names no model type.",
        "Finish the download, or correct model.path.",
        needle="Unrecognized model",
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*?(?<!\S)(?P<path>\S+) does not appear to have (?:a file named|files named) (?P<file>[^.]*\.\w+)"
        rf"|{EXCEPTION_PREFIX}.*Can't load the (?:configuration|model) (?:of|for) '(?P<name>[^']*)'"
        rf"|{EXCEPTION_PREFIX}.*It looks like the config file at '(?P<config>[^']*)' is not a valid JSON",
        FailureCause.MODEL_FILES,
        "The model is incomplete[: {path} has no {file}][: nothing that can be read for {name}][: {config} is not JSON].",
        "Finish the download, or correct model.path.",
        needle=("does not appear to have", "Can't load the", "It looks like the config file at '"),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"^\d+ validation errors? for ModelConfig: .{{0,80}}?(?P<what>{JSON_FAULT}: line \d+ column \d+)"
        rf"|^(?:[\w.]+\.)?JSONDecodeError: (?P<said>{JSON_FAULT}: line \d.*: read by (?!{SETTINGS_READER}).*)",
        FailureCause.MODEL_FILES,
        "A JSON file of the model cannot be read: [{what}][{said}].",
        "Look at config.json and the tokenizer's files: cut short, empty, or a Git LFS pointer. " + _DOWNLOAD_REMEDY,
        needle=(" validation error", ": read by "),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:Couldn't instantiate the backend tokenizer|Can't load tokenizer for|Unable to load vocabulary"
        r"|Tokenizer class (?P<name>\S+) does not exist)",
        FailureCause.MODEL_FILES,
        "The model's tokenizer files are missing or of another kind[ ({name})].",
        "Finish the download: tokenizer.json or a similar file is missing.",
        needle=(
            "Can't load tokenizer for",
            "Couldn't instantiate the backend tokenizer",
            "Tokenizer class",
            "Unable to load vocabulary",
        ),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*No such file or directory: ['\"]?(?P<path>[^'\"]*\.(?:json|safetensors|gguf|bin|model|txt|jinja|engine|plan|onnx"
        r"|pth?|ckpt))(?=['\"]|\s*$)",
        FailureCause.MODEL_FILES,
        "{path} is not there.",
        "Finish the download, or correct the path or its mount.",
        needle="No such file or directory: ",
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:There is no module or parameter named '(?P<name>[^']*)'|Following weights were not initialized from "
        r"checkpoint)",
        FailureCause.MODEL_FILES,
        "The weights do not match the format they are loaded as[: no place for {name}].",
        "Correct args.quantization or the drafter, or take an image that knows this checkpoint.",
        needle=("Following weights were not initialized from checkpoint", "There is no module or parameter named '"),
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}\W?Key (?P<key>\S{{1,200}}) not found in [Ss]afe[Tt]ensors? files?"
        rf"|{EXCEPTION_PREFIX}.{{0,80}}does not contain tensor (?P<tensor>\S{{1,200}})"
        rf"|{EXCEPTION_PREFIX}.{{0,80}}missing tensor '(?P<gguf>[^']{{1,200}})'"
        rf"|{EXCEPTION_PREFIX}[Tt]ensor '?(?P<other>[\w.]{{1,200}}?)'? (?:is )?(?:not found|missing)\b"
        rf"|{EXCEPTION_PREFIX}.{{0,120}}?\b(?:cannot|could not) find tensor (?P<rust>[\w.]{{1,200}})",
        FailureCause.MODEL_FILES,
        "The model's files lack a tensor that the engine looks for: [{key}][{tensor}][{gguf}][{other}][{rust}].",
        "Check that all files of the model are there (model.safetensors.index.json lists them). If they are, they were made for another "
        "program or version, or have another layout (GGUF, tied embeddings): take the checkpoint that this engine names.",
        needle=(" not found in ", "does not contain tensor ", "missing tensor '", "ensor "),
        on=_MODEL_PATH_FIELD,
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}Error\(s\) in loading state_dict for (?P<name>\w{{1,80}})",
        FailureCause.MODEL_FILES,
        "The weights are not those of the model that the engine builds ({name}): names or sizes differ.",
        "The lines after it name them. Correct args.quantization or the drafter, or take an image that knows this checkpoint.",
        needle="in loading state_dict for ",
        on=_MODEL_PATH_FIELD,
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.{{0,80}}\b[Nn]o (?:\.?safe_?tensors?|model weights?|model|weights?|GGUF|gguf|checkpoint)(?: files?)? (?:were "
        rf"|was )?found"
        r"(?: (?:in|at|for):? [`'\"]?(?P<path>[^\s`'\"]{1,300}))?"
        rf"|{EXCEPTION_PREFIX}Error no file named (?P<file>.{{1,160}}?) found in directory (?P<directory>\S{{1,300}}?)\.?$",
        FailureCause.MODEL_FILES,
        "[{path}][{directory}] holds no weights[: none of {file}].",
        "Finish the download: only the small files are there. Or correct model.path: weights of another format are not read.",
        needle=(" found", "Error no file named "),
        on=_MODEL_PATH_FIELD,
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?P<what>Could not detect config format for no config file found|No supported config format found.{{0,200}}"
        r"|Failed to load mistral 'params\.json' config.{0,120}|Unrecognized processing class in (?P<name>\S{1,300}?)\.? Can't)"
        r"|^KeyError: '(?P<key>model_type|architectures)'$"
        r"|^(?:TypeError: 'NoneType' object is not \w{1,20}|IndexError: \w[\w ]{1,40}): .{0,200}\.(?P<read>architectures)\b"
        r"|^AttributeError: 'NoneType' object has no attribute '(?P<attribute>architectures|model_type)'"
        rf"|{EXCEPTION_PREFIX}(?P<none>Model architectures None are not supported)",
        FailureCause.MODEL_FILES,
        "There is no config that the engine can read[: {what}][: {key} is not in it][: it names no {read}]"
        "[: it is empty, where {attribute} is looked for][: {none}].",
        "model.path has to be a directory or repository with a config.json (Mistral: params.json) of a language model: finish the "
        "download, or correct it. A model made of parts (model_index.json, as image models have) is not for this engine.",
        needle=(
            "Could not detect config format",
            "No supported config format",
            "Failed to load mistral 'params.json'",
            "Unrecognized processing class in ",
            "KeyError: 'model_type'",
            "KeyError: 'architectures'",
            ".architectures",
            "has no attribute 'architectures'",
            "has no attribute 'model_type'",
            "Model architectures None",
        ),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}Can't load (?:the )?(?P<part>image processor|feature extractor|video processor|processor"
        rf"|generation config)\w* for '(?P<name>[^']{{1,300}})'"
        rf"|{EXCEPTION_PREFIX}.{{0,60}}(?P<proto>could not parse ModelProto from \S{{1,300}})"
        rf"|{EXCEPTION_PREFIX}Internal: \S{{0,80}}(?P<piece>sentencepiece)_processor"
        rf"|{EXCEPTION_PREFIX}(?P<json>expected (?:value|ident|`[,:]` or `[}}\]]`) at line \d+ column \d+"
        rf"|EOF while parsing \w+ at line \d+ column \d+)"
        r"|^TypeError: (?P<nothing>not a string)$"  # SentencePiece, given no file
        rf"|{EXCEPTION_PREFIX}(?P<chat>.{{0,200}}\btokenizer\.chat_template is not set)"
        rf"|{EXCEPTION_PREFIX}Unable to find vocab file|{EXCEPTION_PREFIX}.{{0,60}}tokenizer\.(?:model|json)\S{{0,3}} (?:not found|is missing)",
        FailureCause.MODEL_FILES,
        "A file beside the weights is missing or not what it should be[: the {part} of {name}][: {proto}][: {piece}][: {json}]"
        "[: SentencePiece got no tokenizer.model ({nothing})][: {chat}].",
        f"Look at the tokenizer's and processor's files: cut short, empty, or a Git LFS pointer. {_DOWNLOAD_REMEDY}",
        needle=(
            "Can't load ",
            "could not parse ModelProto",
            "sentencepiece_processor",
            "expected ",
            "EOF while parsing",
            "TypeError: not a string",
            "tokenizer.chat_template is not set",
            "Unable to find vocab file",
            "tokenizer.",
        ),
        on=_MODEL_PATH_FIELD,
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}(?:500 Internal Server Error: )?(?:invalid file magic|unable to load model: (?P<path>/\S{{1,300}}))",
        FailureCause.MODEL_FILES,
        "The file is no model that this version can load[: {path}].",
        "Take a newer version of the program, which may know the model; else download the file again: it may be cut, or of another format.",
        needle=("invalid file magic", "unable to load model: "),
        on=_MODEL_PATH_FIELD,
        weight=FailureWeight.DEATH,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.{{0,60}}data did not match any variant of untagged enum (?P<what>\w{{1,60}})",
        FailureCause.MODEL_FILES,
        "The image's tokenizers library does not know the format of this tokenizer.json ({what}).",
        "Take a newer image: the file was written by a newer library. If the image is new: " + _DOWNLOAD_REMEDY,
        needle="data did not match any variant of untagged enum",
        on="image",
    ),
    failure_rule(
        r"^(?:[\w.]+\.)?_?UnpicklingError: (?P<what>invalid load key, '.{1,8}?'|Weights only load failed|pickle data was truncated)"
        rf"|{EXCEPTION_PREFIX}(?P<said>Unable to load weights from pytorch checkpoint file)",
        FailureCause.MODEL_FILES,
        "A weight file is not what its name says: [{what}][{said}].",
        "Load key 'v' is a Git LFS pointer, '<' a web page: look at the file's beginning (head -c 200). "
        f"{_DOWNLOAD_REMEDY} Prefer a repository with safetensors.",
        needle=("UnpicklingError: ", "from pytorch checkpoint file"),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        r"^(?:[\w.]+\.)?EOFError: Ran out of input$|[Dd]igest mismatch, file must be downloaded again",
        FailureCause.TRUNCATED_WEIGHTS,
        "A file of the model is cut short or damaged.",
        _DOWNLOAD_REMEDY,
        needle=("Ran out of input", "igest mismatch"),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        r"(?P<what>Failed to deserialize cuda engine|Error opening engine file: [^\s(]{1,300}|Serialization assertion .{1,100} failed"
        r"|incompatible serialization version|engine plan file is (?:not compatible|generated on an incompatible device)[^.]{0,120})",
        FailureCause.MODEL_FILES,
        "The engine file of TensorRT cannot be used here: {what}.",
        "Such a file is valid for one version of TensorRT and one kind of GPU, and is where the build put it: build it again on the Spark "
        "with this very image, or correct the path to it.",
        needle=(
            "Failed to deserialize cuda engine",
            "Error opening engine file: ",
            "Serialization assertion ",
            "incompatible serialization version",
            "engine plan file is ",
        ),
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        r"\bNO_SUCHFILE\b|Load model (?:from )?(?P<path>\S{1,300}) failed(?:\.|:\s?)\s*File doesn't exist|\b(?P<kind>INVALID_PROTOBUF)\b"
        rf"|{EXCEPTION_PREFIX}Unable to open file '(?P<file>[^']{{1,200}})' in model '(?P<model>[^']{{1,300}})'",
        FailureCause.MODEL_FILES,
        "A file of the model is not there or cannot be read[: {path}][ ({kind})][: {file} in {model}].",
        f"Finish the download, or correct the path or its mount. {_DOWNLOAD_REMEDY}",
        needle=("NO_SUCHFILE", "Load model ", "INVALID_PROTOBUF", "Unable to open file '"),
        on=_MODEL_PATH_FIELD,
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        r"^KeyError: ['\"](?P<name>(?:\w+\.)+\w*(?:weight|scale|bias|zeros|zero_point|g_idx)\w*(?:\.\w+){0,4})['\"]"
        rf"|{EXCEPTION_PREFIX}Attempted to load weight (?P<has>.{{1,80}}?) into parameter (?P<wants>.{{1,80}})",
        FailureCause.MODEL_FILES,
        "The weights do not match the format they are loaded as[: no place for {name}][: a weight of {has} for one of {wants}].",
        "Correct args.quantization or the drafter, or take an image that knows this checkpoint.",
        needle=("Attempted to load weight", "KeyError: "),
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*?(?P<name>\w{{0,40}}(?:weight|scale)\w{{0,40}} for layer '[^']{{1,120}}') was never loaded",
        FailureCause.MODEL_FILES,
        "The model's files lack a weight: {name}.",
        "Take a checkpoint that has it, or start without the part that needs it, such as a draft that was left out of the quantization.",
        needle=" was never loaded",
        on=_MODEL_PATH_FIELD,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}The size of tensor a \((?P<has>\d+)\) must match the size of tensor b \((?P<wants>\d+)\)",
        FailureCause.MODEL_FILES,
        "A weight in the files has a different size than the model needs ({has}, {wants}).",
        "Correct args.quantization or the drafter, or take an image that knows this checkpoint.",
        needle="The size of tensor a",
        during="weights",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*Cannot find the config file for (?P<kind>\w+)",
        FailureCause.BAD_VALUE,
        "The model is not quantized as {kind}.",
        "Remove args.quantization or give the kind the weights were made with.",
        needle="Cannot find the config file for",
        on="args.quantization",
        change=ChangeDirection.REMOVE,
    ),
)
# After the rules for files of a model: these words are said of a directory, too.
_PATH_FAILURES = (
    failure_rule(
        rf"{EXCEPTION_PREFIX}\[Errno (?:2|20)\] [\w ]{{1,40}}: "
        r"'(?P<path>/[^']{0,200}\b(?:models?|weights|checkpoints?|huggingface|gguf|hf)\b[^']{0,200})'"
        rf"|{EXCEPTION_PREFIX}.{{0,60}}\b(?:[Mm]odel|[Ww]eights?|[Vv]oice|[Cc]heckpoint|GGUF|[Tt]okenizer) ?"
        r"(?:file|path|directory|dir|folder)?(?: (?P<named>/\S{1,300}))? (?:was )?(?:not found|does not exist)(?: (?:at|in))?"
        r"(?:: (?P<said>\S{1,300}))?",
        FailureCause.MODEL_NOT_FOUND,
        "There is no[ {path}][ {named}][ {said}] in the container.",
        "Correct model.path, or the mount that should bring it in.",
        needle=("[Errno 2]", "[Errno 20]", "not found", "does not exist"),
        on=_MODEL_PATH_FIELD,
        weight=FailureWeight.LIKELY,
    ),
)
_CONFIG_FILES = r"(?:\S{0,200}/)?(?:\w{0,20}config|tokenizer|params|modules|[\w-]{1,60}\.index)\.json"
_UNREADABLE_FAILURES = (
    failure_rule(
        rf"{EXCEPTION_PREFIX}.{{0,120}}?(?P<what>(?:[Ff]ailed to|[Uu]nable to|[Cc]ould not|[Cc]annot) (?:parse|read|open|load|find) (?:the )?"
        rf"(?:[`'\"]?{_CONFIG_FILES}|(?:model )?config(?:uration)? file)\b.{{0,120}}"
        rf"|[`'\"]?{_CONFIG_FILES}[`'\"]? (?:was )?(?:not found|is missing|does not (?:contain|exist))\b.{{0,80}}|no weight map in \S{{1,200}}"
        r"|missing field `\w{1,60}`(?: at|\",) line:? \d{1,9},? column:? \d{1,9})",
        FailureCause.MODEL_FILES,
        "A file beside the weights is missing or not what it should be: {what}",
        "Look whether the download is complete (ls -l the model's directory on the node) and made for this program; correct model.path.",
        needle=(".json", "config file", "configuration file", "no weight map in ", "missing field `"),
        on=_MODEL_PATH_FIELD,
        weight=FailureWeight.LIKELY,
    ),
)
_UNSUPPORTED_FAILURES = (
    failure_rule(  # a question, which somebody may answer
        r"^The repository for \S{1,200} contains custom code which must be executed",
        FailureCause.TRUST_REMOTE_CODE,
        "The model has its own code, and the engine asks whether to run it.",
        "If you trust the model's author, set args.trust-remote-code: true.",
        needle="contains custom code which must be executed",
        on="args.trust-remote-code",
        to="true",
        warning=True,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*(?:contains custom code which must be executed|requires you to execute custom code"
        rf"|[Pp]lease pass the argument `trust_remote_code=True`"
        r"|(?:consider setting|set the option) `?trust_remote_code=True`?|requires you to execute the (?:configuration|modeling) "
        r"file)",
        FailureCause.TRUST_REMOTE_CODE,
        "The model has its own code, which the engine is not allowed to run.",
        "If you trust the model's author, set args.trust-remote-code: true.",
        needle=(
            "trust_remote_code=True",
            "contains custom code which must be executed",
            "requires you to execute ",
        ),
        on="args.trust-remote-code",
        to="true",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*Model architectures (?P<names>\[[^\]]*\]) are not supported",
        FailureCause.MODEL_UNSUPPORTED,
        "This image does not know the model's architecture {names}.",
        "Take a newer image of the engine.",
        needle="Model architectures",
        on="image",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*Model architectures (?P<names>\[[^\]]*\]) failed to be inspected",  # why stands before it
        FailureCause.MODEL_UNSUPPORTED,
        "This image cannot load what it has for the model's architecture {names}.",
        "Take a newer image of the engine.",
        needle="Model architectures",
        on="image",
        weight=FailureWeight.LIKELY,
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}.*model type `(?P<type>[^`]*)` but Transformers does not recognize this architecture"
        rf"|{EXCEPTION_PREFIX}.*?\b(?P<arch>\w+) has no (?:vLLM|SG[Ll]ang) implementation|"
        rf"{EXCEPTION_PREFIX}.*No model architectures are specified|"
        rf"{EXCEPTION_PREFIX}.*\b[Aa]rchitecture:? '?(?P<other>\w{{3,80}})'? is (?:not (?:yet )?supported|unsupported)",
        FailureCause.MODEL_UNSUPPORTED,
        "This image does not know the model[ type {type}][ class {arch}][ class {other}].",
        "Take a newer image of the engine.",
        needle=(
            "rchitecture",
            "has no vLLM implementation",
            "lang implementation",
            "Lang implementation",
            "No model architectures are specified",
            "` but Transformers does not recognize this architecture",
        ),
        on="image",
    ),
    failure_rule(
        rf"{EXCEPTION_PREFIX}[Uu]n(?:supported|known|recognized) (?:model )?(?:architecture|model(?: type)?):? ['\"]?(?P<kind>(?!ID\b"
        rf"|name\b|sm_?\d)[A-Za-z][\w.-]{{1,80}})['\"]?\W*$"
        rf"|{EXCEPTION_PREFIX}(?:The )?[Mm]odel(?: type| architecture)? '?(?P<type>[A-Za-z][\w.-]{{2,80}})'? is not (?:yet )?supported\b"
        rf"|{EXCEPTION_PREFIX}[Mm]odel (?:type|architecture) '?(?P<said>[A-Za-z][\w.-]{{1,80}})'? (?:not (?:yet )?supported|unsupported)\b"
        rf"|{EXCEPTION_PREFIX}Architecture '?(?P<arch>\w{{2,80}})'? not supported|^KeyError: '(?P<key>\w{{2,80}}(?:ForCausalLM"
        rf"|ForConditionalGeneration|LMHeadModel))'"
        rf"|{EXCEPTION_PREFIX}Unrecognized configuration class .{{0,200}} for this kind of AutoModel"
        rf"|{EXCEPTION_PREFIX}module '?transformers[\w.]{{0,80}}'? has no attribute '?(?P<name>[A-Z]\w{{2,80}})"
        rf"|{EXCEPTION_PREFIX}cannot import name '(?P<class>\w{{2,80}}(?:Config|ForCausalLM|ForConditionalGeneration|Processor))' from 'transformers"
        rf"|{EXCEPTION_PREFIX}GGUF model with architecture (?P<gguf>\S{{1,80}}) is not supported|Unsupported model (?:IR|binary) version"
        rf"|{EXCEPTION_PREFIX}(?:start .{{1,120}}: )?(?:Model is not supported\b|(?P<part>Rope scaling is not supported for \w{{1,60}}"
        r"|`?\w{1,40}`? model type is not supported for \w{1,60}|\w{1,60} only supports absolute position embeddings))",
        FailureCause.MODEL_UNSUPPORTED,
        "This image does not know the model[ type {type}][ type {said}][ ({kind})][ ({arch})][ ({key})][: its transformers has no {name}]"
        "[: its transformers has no {class}][ ({gguf})][: {part}].",
        "Take a newer image of the engine.",
        needle=(
            "rchitecture",
            "ForCausalLM",
            "ForConditionalGeneration",
            "LMHeadModel'",
            "supported model",
            "known model",
            "recognized model",
            " is not supported",
            " is not yet supported",
            " not supported",
            " not yet supported",
            " unsupported",
            "Unrecognized configuration class ",
            "transformers",
            "Unsupported model IR version",
            "Unsupported model binary version",
            "only supports absolute",
        ),
        on="image",
        weight=FailureWeight.LIKELY,
    ),
)

MODEL_FILE_FAILURES = _CORRUPT_FAILURES + _PATH_FAILURES + _UNREADABLE_FAILURES + _UNSUPPORTED_FAILURES
