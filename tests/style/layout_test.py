"""Holds the source to layout_rules.py and class_rules.py, and plants one violation of each kind to see that it is found."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import class_rules  # noqa: E402
import layout_rules  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
HEADER = "// One line.\n#pragma once\n"
RULES = {rule.__name__: rule for rule in layout_rules.RULES + class_rules.RULES}


class LayoutTest(unittest.TestCase):
    """One test for each rule, on the real tree."""

    tree = layout_rules.Tree(ROOT)


class PlantedViolationTest(unittest.TestCase):
    """A small clean tree, one planted file, and the rule that must speak."""

    CLEAN = {
        "lib/base/error.h": HEADER,
        "lib/wire/peer.proto": "",
        "sidecar/memory/staging.h": HEADER + '#include "lib/base/error.h"\n',
        "sidecar/transport/loop/loop_transport.h": HEADER + '#include "sidecar/memory/staging.h"\n',
        "sidecar/registry/buffer.h": HEADER + '#include "sidecar/memory/staging.h"\n',
        "sidecar/transfer/engine.h": HEADER + '#include "sidecar/registry/buffer.h"\n#include <sys/types.h>\n',
        "sidecar/app/part.cc": '#include "sidecar/transfer/engine.h"\n',
        "sidecar/peer/server/server.cc": '#include "lib/wire/peer.grpc.pb.h"\n#include <grpcpp/grpcpp.h>\n',
        "client/session/client_config.cc": 'const char* level = getenv("GANTRY_LOG");\n',
        "client/include/gantry.h": "#ifndef GANTRY_H\n#define GANTRY_H\n#endif\n// of cudaMalloc or hipMalloc, a cudaStream_t\n",
        "client/python/gantry/view.py": "getattr(it, '__cuda_array_interface__', None), getattr(it, 'cuda_stream', 0)\n",
        "lib/gpu/cuda/cuda_driver.cc": "// libcuda.so.1, NVLink\n",
        "lib/gpu/cuda/cuda_abi.h": HEADER,
        "client/session/session.h": HEADER,
        "sidecar/worker/process/copy.cc": "sigprocmask(0); bool kFdsWanted; // a chip's relationship, ownership, HIPAA, a camd\n",
        "lib/http/http_call.cc": "#include <httplib.h>\n// getenv and #if in a comment are fine\n",
        "gantryctl/table.h": HEADER,
        "bench/speed.h": HEADER + '#include "gantryctl/table.h"\n',
        "lib/base/thread.h": HEADER + "std::jthread thread(std::move(work));\n",
        "sidecar/peer/client/watch.cc": "ASSIGN_OR_RETURN(std::jthread thread, StartThread(name, [] {}));\nstd::vector<std::jthread> threads_;\n",
        "lib/base/guarded.h": HEADER + "class Guarded {\n  int Sum() { return 1; }\n  const int most_ = 2;\n  Mutex mutex_;\n  std::map<int, int> all_ GUARDED_BY(mutex_);\n};\n",
        **{f"sidecar/transport/part_{i}.h": HEADER for i in range(layout_rules.FOLDER_FILES_MAX)},
        "tests/sidecar/transfer_test.cc": '#include <httplib.h>\n#include "sidecar/transfer/engine.h"\n',
    }

    PLANTED = [
        ("includes_follow_the_arrows", "sidecar/memory/up.cc", '#include "sidecar/registry/buffer.h"\n'),
        ("includes_follow_the_arrows", "sidecar/registry/up.h", HEADER + '#include "sidecar/transfer/engine.h"\n'),
        ("includes_follow_the_arrows", "sidecar/transport/rdma/aside.cc", '#include "sidecar/registry/buffer.h"\n'),
        ("includes_follow_the_arrows", "sidecar/transport/loop/up.cc", '#include "sidecar/registry/buffer.h"\n'),
        ("includes_follow_the_arrows", "sidecar/api/loop.cc", '#include "sidecar/transport/loop/loop_transport.h"\n'),
        ("includes_follow_the_arrows", "client/session/wrong.cc", '#include "sidecar/memory/staging.h"\n'),
        ("includes_follow_the_arrows", "gantryctl/wrong.cc", '#include "sidecar/transfer/engine.h"\n'),
        ("includes_follow_the_arrows", "gantryctl/measure.cc", '#include "bench/speed.h"\n'),
        ("includes_follow_the_arrows", "sidecar/plan/aside.cc", '#include "sidecar/transfer/engine.h"\n'),
        ("includes_follow_the_arrows", "lib/base/up.cc", '#include "tests/sidecar/transfer_test.cc"\n'),
        ("includes_follow_the_arrows", "lib/gpu/shared/up.cc", '#include "lib/gpu/cuda/cuda_abi.h"\n'),
        ("includes_follow_the_arrows", "sidecar/memory/vendor.cc", '#include "lib/gpu/cuda/cuda_abi.h"\n'),
        ("includes_follow_the_arrows", "client/memory/up.cc", '#include "client/session/session.h"\n'),
        ("includes_follow_the_arrows", "lib/base/near.cc", '#include "error.h"\n'),
        ("includes_follow_the_arrows", "sidecar/api/remote.cc", '#include "lib/wire/peer.pb.h"\n'),
        ("includes_follow_the_arrows", "sidecar/news/file.cc", '#include "sidecar/transfer/engine.h"\n'),
        ("third_parties_stay_put", "sidecar/transport/web.cc", "#include <httplib.h>\n"),
        ("third_parties_stay_put", "gantryctl/table.cc", "#include <httplib.h>\n"),
        ("third_parties_stay_put", "sidecar/transfer/flags.cc", "#include <CLI/CLI.hpp>\n"),
        ("third_parties_stay_put", "sidecar/api/rpc.cc", "#include <grpcpp/grpcpp.h>\n"),
        ("third_parties_stay_put", "sidecar/transfer/count.cc", "#include <prometheus/counter.h>\n"),
        ("third_parties_stay_put", "client/session/say.cc", "#include <spdlog/spdlog.h>\n"),
        ("third_parties_stay_put", "sidecar/transfer/text.cc", "#include <nlohmann/json.hpp>\n"),
        ("third_parties_stay_put", "sidecar/transfer/other.cc", "#include <boost/any.hpp>\n"),
        ("file_names_are_unique", "client/session/error.h", HEADER),
        ("folders_are_small", "sidecar/transport/z_one_more.h", HEADER),
        ("files_are_short", "tests/sidecar/long_test.cc", "\n" * 401),
        ("environment_is_read_in_one_place", "lib/base/env.cc", 'auto* x = std::getenv("HOME");\n'),
        ("no_conditional_compilation", "lib/gpu/choice.cc", "#ifdef HAVE_GPU\n#endif\n"),
        ("no_conditional_compilation", "lib/gpu/choice.cc", "  # if 1\n#endif\n"),
        *[("threads_are_started_in_one_place", "sidecar/peer/client/link.cc", text + "\n") for text in [
            "thread_ = std::thread([this] { Run(); });", "std::thread worker;", "thread_ = std::jthread([this] { Run(); });",
            "std::jthread reading([&] {});", "auto later = std::async(Run);", "pthread_create(&id, nullptr, Run, nullptr);",
            "Link::Link() : name_(1), thread_([this] { Run(); }) {}", "threads_.emplace_back([this] { Run(); });"]],
        ("nothing_is_left_unfinished", "lib/base/later.cc", "// TO" + "DO(me): later\n"),
        ("names_say_something", "lib/base/string_utils.cc", "\n"),
        ("names_say_something", "sidecar/common/thing.cc", "\n"),
        *[("vendors_stay_below", path, f"{name}\n") for path, name in [
            ("sidecar/memory/gpu.cc", "// as fast as NVLink"), ("sidecar/memory/gpu.cc", "constexpr int kNvLinkLanes = 18;"),
            ("sidecar/memory/gpu.cc", 'Open("libcuda.so.1")'), ("sidecar/memory/gpu.cc", "bool IsAmd();"),
            ("gantryctl/doctor.cc", "// XGMI"), ("gantryctl/doctor.cc", "CudaDriver driver;"), ("client/memory/gpu.cc", "hip_stream = 0;"),
            ("client/memory/gpu.cc", "cudaMalloc();"), ("client/include/gantry.h", "int cuda_device;"), ("lib/wire/of.proto", "bool is_rocm = 1;"),
            ("client/python/gantry/view.py", "torch.cuda_is_better, cudart"), ("deviceplugin/gpus.cc", '"amd.com/gpu"'),
            ("deviceplugin/gpus.cc", '"/dev/nvidia0"'), ("deviceplugin/gpus.cc", "HIPStream"), ("sidecar/memory/cuda_names.cc", ""),
            ("lib/base/library.cc", "libamdhip64.so.7")]],
        ("members_beside_a_mutex_are_guarded", "lib/base/count.h", HEADER + "class Count {\n  void Add();\n  Mutex mutex_;\n  int count_ = 0;\n};\n"),
        ("classes_are_small", "lib/base/full.h", HEADER + "class Full {\n" + "".join(f"  int a{i}_ = 0;\n" for i in range(16)) + "};\n"),
        ("classes_are_small", "lib/base/busy.h", HEADER + "class Busy {\n" + "".join(f"  void Do{i}();\n" for i in range(27)) + "};\n"),
        ("interfaces_are_small", "lib/base/wide.h", HEADER + "class Wide {\n" + "".join(f"  virtual int Do{i}() = 0;\n" for i in range(7)) + "};\n"),
        ("interfaces_are_small", "lib/base/hinted.h", HEADER + "class Hinted {\n  virtual ~Hinted() = default;\n  virtual Status Do() const = 0;\n"
         + "".join(f"  virtual void Hint{i}() {{}}\n" for i in range(6)) + "};\n"),
        ("exceptions_are_of_classes", "sidecar/worker/pool/worker_pool.h", HEADER + "class Pool {};\n"),
        ("headers_introduce_themselves", "lib/base/silent.h", "#pragma once\n"),
        ("headers_introduce_themselves", "lib/base/wordy.h", "// line\n" * 6 + "#pragma once\n"),
        ("headers_introduce_themselves", "lib/base/twice.h", "// One line.\n"),
    ]

    def violations(self, rule, planted):
        with tempfile.TemporaryDirectory() as folder:
            for path, text in {**self.CLEAN, **planted}.items():
                (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / path).write_text(text)
            return list(rule(layout_rules.Tree(folder)))

    def test_clean_tree_has_no_violation(self):
        for rule in RULES.values():
            with self.subTest(rule=rule.__name__):
                self.assertEqual(self.violations(rule, {}), [])

    def test_each_rule_is_tried(self):
        self.assertEqual({name for name, _, _ in self.PLANTED}, set(RULES))

    def test_each_planted_violation_is_found(self):
        for name, path, text in self.PLANTED:
            with self.subTest(rule=name, path=path):
                found = self.violations(RULES[name], {path: text})
                self.assertEqual([line.split(":")[0] for line in found][:1], [path])


def check(rule):
    def test(self):
        violations = list(rule(self.tree))
        self.assertEqual(violations, [], "\n" + "\n".join(violations))
    return test


for each in RULES.values():
    setattr(LayoutTest, f"test_{each.__name__}", check(each))

if __name__ == "__main__":
    unittest.main()
