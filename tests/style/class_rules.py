"""The rules that hold the shape of classes: what a lock guards is said, and no class grows beyond a few members and methods.

As in layout_rules.py, every rule takes a Tree and yields its violations. layout_test.py runs them.
"""

import re

from layout_rules import CODE_FOLDERS, without_comments

# Classes beside whose mutex are members of one thread, or such as are set before a second thread sees the object. Their
# class comments say which. An entry goes when its class is split.
HAVE_OTHER_MEMBERS = set("""DmaBufAbility GpuRegistry GpuResolver GrpcHealthServer GrpcPeerClient HandshakeLog
HttpServer::Loop IoLoop RdmaPeer RdmaTarget RdmaTransport RemoteStage BufferRegistry Families Link SlotReconciler
StagedCopies TcpTransport Timeline WatchReader WorkerSupervisor VendorPinnedMemory""".split())

NEEDS_NO_GUARD = re.compile(r"GUARDED_BY|\b(const|static|using|friend|Mutex|Condition|std::j?thread)\b|std::atomic|& *\w+$"
                            r"|std::vector<std::j?thread>")


def class_bodies(text):
    """Yields (class name, line number, text of the body without comments, strings and what nests in it)."""
    text = without_comments(text)
    attribute = r"(?:\w+\([^)]*\)|\[\[[^\]]*\]\]) "  # SCOPED_CAPABILITY(...), alignas(64), [[nodiscard]]
    for match in re.finditer(rf"\b(?:class|struct) (?:{attribute})*(\w+(?:::\w+)*)(?: final)?\s*(?:: [^;{{}}]*)?\{{", text):
        body, depth, at = [], 1, match.end()
        while depth and at < len(text):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            if depth == 1:
                body.append(text[at])
            at += 1
        yield match.group(1), text.count("\n", 0, match.start()) + 1, "".join(body)


def members_beside_a_mutex_are_guarded(tree):
    for path, text in tree.cpp(CODE_FOLDERS):
        for name, number, body in class_bodies(text) if "Mutex " in text else ():
            if name in HAVE_OTHER_MEMBERS or not re.search(r"\bMutex \w+;", body):
                continue
            for statement in re.split(r"[;}]|\b(?:public|private|protected):", body):
                words = re.sub(r"\s+", " ", re.sub(r"=.*", "", statement, flags=re.S)).strip()
                is_member = re.search(r"^[\w:<>,*& ()\[\]]+[ >*&]\w+_$", words)
                if is_member and not NEEDS_NO_GUARD.search(statement.strip()):
                    yield f"{path}:{number}: {name}: \"{words}\" is beside a mutex and not GUARDED_BY it"

MEMBERS_MAX = 15
METHODS_MAX = 26
# Classes that are to be split by responsibility, as large as they are: members, methods. They may not grow. An entry shrinks with
# its class, and goes when that is split.
TO_BE_SPLIT = {
    "sidecar/transport/tcp/target_stream.h:TargetStream": (23, 41),
    "sidecar/copy/copy_scheduler.h:CopyScheduler": (16, 31),
    "sidecar/worker/pool/worker_pool.h:WorkerPool": (13, 39),
    "sidecar/transport/rdma/rdma_peer.h:RdmaPeer": (25, 36),
    "sidecar/transport/rdma/rdma_connection.h:RdmaConnection": (14, 33),
    "sidecar/app/sidecar_app.cc:App": (32, 13),
    "sidecar/peer/server/peer_service.h:PeerService": (8, 31),
    "sidecar/peer/client/peer_client.cc:GrpcPeerClient": (14, 30),
    "sidecar/transport/rdma/rdma_operation.h:RdmaOperation": (17, 29),
    "lib/codec/schema_reader.cc:SchemaHandler": (9, 29),
    "sidecar/transport/tcp/initiator_stream.h:InitiatorStream": (25, 29),
    "sidecar/copy/copy_operation.h:CopyOperation": (21, 25),
    "deviceplugin/kubelet_link.cc:Link": (24, 18),
    "lib/http/http_server.cc:HttpServer::Loop": (22, 23),
    "sidecar/peer/server/peer_server.cc:GrpcPeerServer": (22, 19),
    "sidecar/worker/pool/worker_supervisor.h:WorkerSupervisor": (19, 20),
    "sidecar/worker/process/worker_loop.h:WorkerLoop": (16, 19),
    "sidecar/transport/bounce/remote_stage.h:RemoteStage": (18, 14),
    "deviceplugin/plugin_metrics.cc:Families": (17, 12),
}
CALLS_MAX = 6
# Interfaces with more calls: their number, and why. It may not grow. An entry shrinks with its interface, and goes when that has few.
MORE_CALLS = {
    "sidecar/peer/client/peer_client.h:PeerClient": (20, "one call for each RPC of the peer API"),
    "deviceplugin/plugin_metrics.h:PluginMetrics": (11, "one call for each event that is counted"),
    "lib/gpu/shared/gpu_driver.h:GpuContext": (14, "what the drivers of two vendors do within a context"),
    "lib/gpu/shared/cluster_gpus.h:ClusterGpus": (10, "what differs between two vendors' nodes"),
    "lib/gpu/shared/gpu_pointers.h:GpuPointers": (8, "what the drivers of two vendors tell a workload"),
    "sidecar/transport/rdma/verbs/verbs.h:VerbsDevice": (10, "one call for each kind of object that libibverbs makes"),
    "sidecar/transport/tcp/channel/socket_channel.h:SocketChannel": (8, "a socket, in plain text or with TLS"),
    "connectors/nixl/abi/nixl_interface.h:BackendEngine": (25, "NIXL's table of functions"),
    "lib/gpu/shared/gpu_driver.h:GpuStream": (7, "what the drivers of two vendors do in a stream"),
}
# Tables of another library's functions, by their names there.
TABLES_OF_FUNCTIONS = re.compile(r"^lib/gpu/.*_abi\.h$|^connectors/nixl/abi/nixl_interface\.h$")

ANNOTATION = re.compile(r"\b(?:PT_)?(?:GUARDED_BY|REQUIRES|EXCLUDES|ACQUIRE|RELEASE|TRY_ACQUIRE)\([^()]*(?:\([^()]*\)[^()]*)*\)"
                        r"|\bNO_THREAD_SAFETY_ANALYSIS\b")
DECLARES_NEITHER = re.compile(r"(?:using|friend|static_assert|class|struct|enum)\b")


def statements_of(body):
    """Yields the declarations at the level of a class, without annotations, initialisers and template arguments."""
    for statement in re.split(r"[;}]|\b(?:public|private|protected):", ANNOTATION.sub("", body)):
        words = statement if "operator" in statement else statement.split("=")[0]
        for _ in range(4):
            words = re.sub(r"<[^<>]*>", "", words)
        words = " ".join(words.split())
        if words and not DECLARES_NEITHER.match(words):
            yield words


def size_of(name, body):
    """Returns how many members and methods a class has; constructors and destructor are not counted."""
    members = methods = 0
    for words in statements_of(body):
        if "(" not in words:
            members += len(re.findall(r"\w_(?:\[\w*\])?(?=,|$)", words))
        elif not re.match(rf"(?:explicit |constexpr )*~?{name} ?\(", words):
            methods += 1
    return members, methods


def classes_are_small(tree):
    for path, text in tree.cpp(CODE_FOLDERS):
        for name, number, body in class_bodies(text) if not TABLES_OF_FUNCTIONS.match(path) else ():
            size = size_of(name.split("::")[-1], body)
            most = TO_BE_SPLIT.get(f"{path}:{name}", (MEMBERS_MAX, METHODS_MAX))
            for noun, has, may_have in zip(("members", "methods"), size, most):
                if has > may_have:
                    yield f"{path}:{number}: {name} has {has} {noun}; at most {may_have}"
            if most != (MEMBERS_MAX, METHODS_MAX) and size != most and all(has <= may_have for has, may_have in zip(size, most)):
                yield f"{path}:{number}: {name} is {size} by now: TO_BE_SPLIT says {most}"


def calls_of(body):
    """Returns how many virtual calls an interface declares, with defaults or without; 0: it is no interface."""
    is_interface = re.search(r"\)[^;{}]*= 0;", ANNOTATION.sub("", body))
    return len(re.findall(r"\bvirtual\b(?! ~)", body)) if is_interface else 0


def interfaces_are_small(tree):
    for path, text in tree.cpp(CODE_FOLDERS):
        for name, number, body in class_bodies(text) if "virtual" in text else ():
            calls = calls_of(body)
            most, _ = MORE_CALLS.get(f"{path}:{name}", (CALLS_MAX, ""))
            if calls > most:
                yield f"{path}:{number}: {name} has {calls} virtual calls; at most {most}"
            elif calls < most and most != CALLS_MAX:
                yield f"{path}:{number}: {name} has {calls} virtual calls by now: MORE_CALLS says {most}"


def exceptions_are_of_classes(tree):
    """A tree that has none of their files is another one."""
    texts = dict(tree.cpp(CODE_FOLDERS))
    entries = [entry.split(":", 1) for entry in [*TO_BE_SPLIT, *MORE_CALLS]]
    if not any(path in texts for path, _ in entries):
        return
    for path, name in sorted(entries, key=lambda entry: entry[0] not in texts):
        if name not in [found for found, _, _ in class_bodies(texts.get(path, ""))]:
            yield f"{path}:1: has no class {name}: an exception of class_rules.py is for it"


RULES = [members_beside_a_mutex_are_guarded, classes_are_small, interfaces_are_small, exceptions_are_of_classes]
