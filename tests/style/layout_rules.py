"""The rules that hold the layout of the source: tables first, then one function for each rule.

Every rule takes a Tree and yields its violations as "path:line: what is wrong". layout_test.py runs them.
"""

import re
from collections import Counter
from pathlib import Path

# Folder -> what its files may include besides their own folder. Arrows point down; see docs/architecture.md.
LIBRARIES = ["lib/base", "lib/process", "lib/host", "lib/gpu", "lib/gpu/shared", "lib/codec", "lib/wire", "lib/topology", "lib/net", "lib/rpc"]
PEER_PATHS = ["sidecar/transport/bounce", "sidecar/transport/rdma", "sidecar/transport/tcp"]
# The includes of a transport whose folder has no row of its own.
A_TRANSPORT = LIBRARIES + ["sidecar/copy", "sidecar/memory", "sidecar/metrics", "sidecar/plan", "sidecar/transport"]
MAY_INCLUDE = {
    "lib/base": [],
    "lib/codec": ["lib/base"],
    "lib/process": ["lib/base"],
    "lib/gpu/shared": ["lib/base"],
    "lib/gpu/cuda": ["lib/base", "lib/gpu/shared"],
    "lib/gpu/hip": ["lib/base", "lib/gpu/shared"],
    "lib/gpu": ["lib/base", "lib/gpu/cuda", "lib/gpu/hip", "lib/gpu/shared"],
    "lib/host": ["lib/base"],
    "lib/http": ["lib/base", "lib/codec"],
    "lib/metrics": ["lib/base", "lib/http"],
    "lib/net": ["lib/base"],
    "lib/rpc": ["lib/base", "lib/host"],
    "lib/topology": ["lib/base"],
    "lib/wire": ["lib/base", "lib/codec"],
    "sidecar/metrics": ["lib/base", "lib/codec", "lib/metrics", "lib/wire"],
    "sidecar/memory": LIBRARIES,
    "sidecar/worker/channel": LIBRARIES + ["sidecar/memory"],
    "sidecar/worker/process": LIBRARIES + ["sidecar/memory", "sidecar/worker/channel"],
    "sidecar/worker/pool": LIBRARIES + ["sidecar/memory", "sidecar/worker/channel", "sidecar/worker/process"],
    "sidecar/registry": LIBRARIES + ["sidecar/memory"],
    "sidecar/plan": LIBRARIES + ["sidecar/memory"],
    "sidecar/transport": LIBRARIES + ["sidecar/memory", "sidecar/plan", "sidecar/worker/channel"],
    "sidecar/copy": LIBRARIES + ["sidecar/memory", "sidecar/plan", "sidecar/transport", "sidecar/worker/channel",
                                 "sidecar/worker/process"],
    "sidecar/transport/tcp/channel": LIBRARIES + ["sidecar/copy"],
    "sidecar/transport/tcp": LIBRARIES + ["sidecar/copy", "sidecar/metrics", "sidecar/plan", "sidecar/transport",
                                          "sidecar/transport/tcp/channel"],
    "sidecar/transport/rdma/verbs": LIBRARIES + ["sidecar/memory", "sidecar/transport"],
    "sidecar/transport/rdma": LIBRARIES + ["sidecar/metrics", "sidecar/plan", "sidecar/transport", "sidecar/transport/rdma/verbs"],
    "sidecar/transport/bounce": LIBRARIES + ["sidecar/copy", "sidecar/memory", "sidecar/plan", "sidecar/transport",
                                             "sidecar/transport/rdma", "sidecar/transport/rdma/verbs"],
    "sidecar/remote": LIBRARIES + ["sidecar/memory", "sidecar/plan"],
    "sidecar/messaging": LIBRARIES + ["sidecar/metrics", "sidecar/registry", "sidecar/remote", "sidecar/worker/channel"],
    "sidecar/view": LIBRARIES + ["sidecar/plan", "sidecar/registry", "sidecar/remote"],
    "sidecar/transfer": LIBRARIES + ["sidecar/messaging", "sidecar/metrics", "sidecar/plan", "sidecar/registry", "sidecar/remote",
                                     "sidecar/transport", "sidecar/view", "sidecar/worker/channel"],
    "sidecar/peer/identity": LIBRARIES + ["sidecar/metrics", "sidecar/transport/tcp/channel"],
    "sidecar/peer/client": LIBRARIES + PEER_PATHS + ["sidecar/peer/identity", "sidecar/remote"],
    "sidecar/peer/link": LIBRARIES + PEER_PATHS + ["sidecar/memory", "sidecar/messaging", "sidecar/peer/client",
                                                   "sidecar/peer/identity", "sidecar/registry", "sidecar/remote"],
    "sidecar/peer/execution": LIBRARIES + ["sidecar/peer/client", "sidecar/peer/identity", "sidecar/peer/link", "sidecar/registry",
                                           "sidecar/remote", "sidecar/transfer"],
    "sidecar/peer/server": LIBRARIES + PEER_PATHS + ["sidecar/messaging", "sidecar/metrics", "sidecar/peer/execution",
                                                     "sidecar/peer/identity", "sidecar/registry", "sidecar/transport",
                                                     "sidecar/transport/rdma/verbs", "sidecar/transport/tcp/channel"],
    "sidecar/pod": LIBRARIES,
    "sidecar/api": LIBRARIES + ["lib/http", "sidecar/messaging", "sidecar/metrics", "sidecar/pod", "sidecar/registry",
                                "sidecar/remote", "sidecar/transfer", "sidecar/view"],
    "sidecar/app": ["lib", "sidecar"],  # the wiring sees every room
    "deviceplugin/cdi": ["lib/base"],
    "deviceplugin": LIBRARIES + ["lib/metrics", "deviceplugin/cdi"],
    "client/include": [],
    "client/memory": LIBRARIES,
    "client/timeline": LIBRARIES + ["client/memory"],
    "client/session": LIBRARIES + ["lib/http", "client/include", "client/memory", "client/timeline"],  # its client
    "client/c_api": LIBRARIES + ["client/include", "client/memory", "client/session", "client/timeline"],
    "connectors/nixl/abi": ["lib/base"],
    "connectors/nixl/agent": LIBRARIES + ["client/include", "connectors/nixl/abi"],
    "connectors/nixl/transfer": LIBRARIES + ["client/include", "connectors/nixl/abi", "connectors/nixl/agent"],
    "connectors/nixl": LIBRARIES + ["client/include", "connectors/nixl/abi", "connectors/nixl/agent", "connectors/nixl/transfer"],
    "gantryctl": LIBRARIES + ["lib/http", "client/include"],  # its client
    "bench": LIBRARIES + ["lib/http", "gantryctl", "client/include"],  # its client
    "examples": ["client/include"],
}

# Headers for programs outside of this tree.
PUBLIC = "client/include/"

# First part of a third-party header -> the files that may include it. Tests may include all of them.
THIRD_PARTY = {
    "httplib.h": r"^lib/http/",
    "CLI": r"_config\.cc$|^gantryctl/gantryctl_main\.cc$",
    "grpc": r"^sidecar/peer/|^deviceplugin/|^lib/rpc/",
    "grpcpp": r"^sidecar/peer/|^deviceplugin/|^lib/rpc/",
    "google": r"^sidecar/peer/|^deviceplugin/|^lib/wire/",
    "prometheus": r"^(lib|sidecar)/metrics/|^deviceplugin/plugin_metrics\.cc$",
    "spdlog": r"^lib/base/",
    "tl": r"^lib/base/",
    "nlohmann": r"^(lib/codec|sidecar/api|gantryctl|bench|deviceplugin)/",
    "openssl": r"^(sidecar/memory|sidecar/peer|sidecar/api|sidecar/transport/tcp)/",
    "isa-l": r"^sidecar/transport/tcp/|^gantryctl/kernel_options\.cc$",
    "yaml-cpp": r"^deviceplugin/cdi/cdi_yaml\.cc$",
    "infiniband": r"^sidecar/transport/rdma/",
    "absl": r"^(lib|sidecar|gantryctl|deviceplugin)/",
}
SYSTEM = {"arpa", "asm", "linux", "net", "netinet", "sys"}
GENERATED_FROM_PROTO = r"^(sidecar/peer|lib/wire|deviceplugin)/"

CODE_FOLDERS = ("lib", "sidecar", "deviceplugin", "client", "connectors", "gantryctl", "bench", "examples")
FOLDERS = CODE_FOLDERS + ("tests", "tools", "cmake", "docs", "charts")
LINES_MAX = 400
FOLDER_FILES_MAX = 40
HAS_A_LINE_LIMIT = (".h", ".cc", ".cu", ".py", ".sh", ".cmake", ".proto")
CONTRACTS_OF_OTHERS = re.compile(r"^deviceplugin/.*\.proto$")
# worker_process.cc hands the environment on to what it spawns, and reads nothing of it.
READS_ENVIRONMENT = re.compile(r"(_config|/configuration|^sidecar/worker/pool/worker_process)\.cc$")
STARTS_THREADS = re.compile(r"^lib/base/thread\.h$")
BARE_THREAD = (r"\bstd::thread\b(?!::(?:id|hardware_concurrency)\b)|\bstd::jthread(?: \w+)?\s*[({]|\bstd::async\b|\bpthread_create\b"
               r"|\bthread_?\(\[|\bthreads?_?\.emplace(?:_back)?\(\[")
USES_PREPROCESSOR = re.compile(r"^(client/include/gantry\.h|lib/base/thread_annotations\.h)$")
BANNED_NAMES = {"impl", "util", "utils", "common", "manager"}
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME)\b")

# Vendors of GPUs, their interfaces and links: the files of lib/gpu alone know them. As a word or as a part of an identifier
# ("libcuda", "CudaDriver", "hip_stream", "kNvidia"), and not within one ("sigprocmask", "ownership").
KNOWS_VENDORS = "lib/gpu/"
VENDOR_NAME = re.compile(r"(?<![a-z])(?:lib)?(?:cuda(?:rt)?|nvidia|nv_?link|nvml|nvrtc|hip(?:rtc)?|amd(?:gpu|hip)?|ro_?cm|xgmi|hsa)(?![a-z])")
PART_OF_A_NAME = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# File -> what it may say: the protocols by which frameworks show memory and streams, whatever the vendor, and the names by
# which a reader of the public interface knows what he has.
VENDOR_NAMES_ALLOWED = {
    r"^client/python/": r"__cuda_array_interface__|__cuda_stream__|\bcuda_stream\b|\bcuda\.core\b|\b(cuda|hip)(Malloc|Stream_t)\b"
                        r"|\btorch\.cuda\b|torch\.device\(\\\"cuda\\\"|\"cuda:|\bcuda:[01]\b|PYTORCH_CUDA_ALLOC_CONF",
    r"^client/include/": r"\b(cuda|hip)(Malloc|Stream_t)\b|\bcudaDeviceReset\b",
    # Its engine names devices by vendors.
    r"^connectors/vllm/": r"(?i)\b(cuda|nvidia|amd)\b",
}
# Names that a tool or a language dictates.
MAY_REPEAT = {"CMakeLists.txt", "__init__.py", "__main__.py", "conftest.py", "setup.py", "README.md"}


class Tree:
    """The files of a source tree, with their texts."""

    def __init__(self, root):
        self.texts = {}
        for folder in FOLDERS:
            for path in sorted((Path(root) / folder).rglob("*")):
                if path.is_file() and not {"__pycache__", "build", "dist", "node_modules"} & set(path.parts):
                    try:
                        self.texts[path.relative_to(root).as_posix()] = path.read_text()
                    except UnicodeDecodeError:
                        pass

    def cpp(self, folders=CODE_FOLDERS):
        """Paths and texts of the C++ files in these top folders."""
        for path, text in self.texts.items():
            if path.split("/")[0] in folders and path.endswith((".h", ".cc", ".cu")):
                yield path, text


def without_comments(text):
    """Blanks comments and the insides of strings, keeping line numbers and #include lines."""
    def blank(match):
        token = match.group(0)
        if token.startswith("#"):
            return token
        return ('""' if token[0] in "\"'" else "") + "\n" * token.count("\n")
    return re.sub(r'#[ \t]*include[^\n]*|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
                  blank, text, flags=re.DOTALL)


def matching_lines(text, pattern):
    for number, line in enumerate(text.split("\n"), 1):
        match = re.search(pattern, line)
        if match:
            yield number, match


def folder_of(path):
    """The longest folder of MAY_INCLUDE that holds the path, or None. A transport is a folder without a row."""
    transport = re.match(r"sidecar/transport/\w+(?=/)", path)
    holders = [folder for folder in MAY_INCLUDE if path.startswith(folder + "/")] + ([transport[0]] if transport else [])
    return max(holders, key=len, default=None)


def may_include(folder):
    return MAY_INCLUDE.get(folder, A_TRANSPORT)


def includes_follow_the_arrows(tree):
    for path, text in tree.cpp():
        source = folder_of(path)
        if source is None:
            yield f"{path}:1: this folder is not in MAY_INCLUDE"
            continue
        for number, match in matching_lines(text, r'^\s*#\s*include\s*"([^"]+)"'):
            header = match.group(1)
            if path.startswith(PUBLIC):  # these lie beside each other wherever they are copied
                header = PUBLIC + header
            generated = re.sub(r"(\.grpc)?\.pb\.h$", ".proto", header)
            if header not in tree.texts and (generated == header or generated not in tree.texts):
                yield f'{path}:{number}: "{header}" is no file; includes are written from the root'
                continue
            target = folder_of(header)
            allowed = target is not None and (target == source or target in may_include(source)
                                              or target.split("/")[0] in may_include(source))
            if not allowed:
                yield f'{path}:{number}: {source} must not include "{header}"'
            if generated != header and not re.search(GENERATED_FROM_PROTO, path):
                yield f'{path}:{number}: generated code stays in lib/wire, sidecar/peer and deviceplugin'


def third_parties_stay_put(tree):
    for path, text in tree.cpp():
        for number, match in matching_lines(text, r"^\s*#\s*include\s*<([^>]+)>"):
            header = match.group(1)
            first = header.split("/")[0]
            if first in THIRD_PARTY and not re.search(THIRD_PARTY[first], path):
                yield f"{path}:{number}: <{header}> may be included by {THIRD_PARTY[first]} only"
            elif first not in THIRD_PARTY and "/" in header and first not in SYSTEM:
                yield f"{path}:{number}: <{header}> is not in the table THIRD_PARTY"


def file_names_are_unique(tree):
    seen = {}
    for path in tree.texts:
        name = path.rsplit("/", 1)[-1]
        if path.startswith(CODE_FOLDERS + ("tests/",)) and path.endswith(HAS_A_LINE_LIMIT) and name not in MAY_REPEAT:
            if name in seen:
                yield f"{path}:1: {seen[name]} has the same name"
            seen.setdefault(name, path)


def folders_are_small(tree):
    counts = Counter(str(Path(path).parent) for path in tree.texts if path.startswith(tuple(f"{top}/" for top in CODE_FOLDERS)))
    for folder, count in sorted(counts.items()):
        if count > FOLDER_FILES_MAX:
            yield f"{max(p for p in tree.texts if str(Path(p).parent) == folder)}:1: {folder} has {count} files; at most {FOLDER_FILES_MAX}"


def files_are_short(tree):
    for path, text in tree.texts.items():
        lines = text.count("\n")
        if path.endswith(HAS_A_LINE_LIMIT) and lines > LINES_MAX and not CONTRACTS_OF_OTHERS.match(path):
            yield f"{path}:{lines}: {lines} lines, the limit is {LINES_MAX}"


def environment_is_read_in_one_place(tree):
    for path, text in tree.cpp():
        if not READS_ENVIRONMENT.search(path):
            for number, match in matching_lines(without_comments(text), r"\b(secure_getenv|getenv|environ)\b"):
                yield f"{path}:{number}: {match.group(1)} belongs into the configuration file of its binary"


def no_conditional_compilation(tree):
    for path, text in tree.cpp():
        if not USES_PREPROCESSOR.match(path):
            for number, match in matching_lines(without_comments(text), r"^\s*#\s*(if|ifdef|ifndef|elif)\b"):
                yield f"{path}:{number}: #{match.group(1)}: platforms differ by file and by run-time choice"


def threads_are_started_in_one_place(tree):
    for path, text in tree.cpp():
        if not STARTS_THREADS.match(path) and not path.startswith("examples/"):
            for number, match in matching_lines(without_comments(text), BARE_THREAD):
                yield f"{path}:{number}: \"{match.group(0)}\" may throw where no thread is to be had: StartThread (lib/base/thread.h) says so"


def nothing_is_left_unfinished(tree):
    for path, text in tree.texts.items():
        for number, match in matching_lines(text, UNFINISHED):
            yield f"{path}:{number}: {match.group(1)}"


def names_say_something(tree):
    for path in tree.texts:
        for part in path.split("/"):
            banned = BANNED_NAMES & set(re.split(r"[._-]", part.lower()))
            if banned:
                yield f"{path}:1: \"{banned.pop()}\" says nothing; name the file for what it knows"


def vendors_stay_below(tree):
    for path, text in tree.texts.items():
        if not path.startswith(CODE_FOLDERS) or path.startswith((KNOWS_VENDORS, "examples/")):
            continue
        allowed = next((names for file, names in VENDOR_NAMES_ALLOWED.items() if re.search(file, path)), None)
        for number, line in enumerate([path] + text.split("\n")):
            said = re.sub(allowed, " ", line) if allowed and number else line
            found = VENDOR_NAME.search(PART_OF_A_NAME.sub("_", said).lower())
            if found:
                yield f"{path}:{max(number, 1)}: \"{found.group(0)}\" is a vendor's: what differs by vendor is lib/gpu's alone"


def headers_introduce_themselves(tree):
    for path, text in tree.cpp(CODE_FOLDERS + ("tests",)):
        if not path.endswith(".h") or USES_PREPROCESSOR.match(path) and path.startswith("client/"):
            continue
        lines = text.split("\n")
        comment = next((i for i, line in enumerate(lines) if not line.startswith("//")), len(lines))
        if not 1 <= comment <= 5:
            yield f"{path}:1: begins with {comment} lines of comment; it takes one to five"
        if lines[comment:comment + 1] != ["#pragma once"]:
            yield f"{path}:{comment + 1}: #pragma once comes right after the comment"


RULES = [includes_follow_the_arrows, third_parties_stay_put, file_names_are_unique, folders_are_small, files_are_short,
         environment_is_read_in_one_place, no_conditional_compilation, threads_are_started_in_one_place, nothing_is_left_unfinished,
         names_say_something, vendors_stay_below, headers_introduce_themselves]
