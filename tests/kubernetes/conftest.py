"""The node of the session, with Gantry installed by its chart as a user does it, and pods of a user's chart.

Programs are those of build/release. GANTRY_IMAGE names an archive with Gantry's image, GANTRY_IMAGE_NAME the image in it.
"""

import ctypes
import itertools
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import node_gpus  # noqa: E402
import node_images  # noqa: E402
from cluster import PLUGIN_LABELS, WORKLOAD_IMAGE, Cluster, Engine, engine_spec, status_of, wait_for  # noqa: E402
from gpu_pods import GpuPods  # noqa: E402
from node_files import NodeFiles  # noqa: E402
from node_life import ROOT, Node  # noqa: E402

BUILD = ROOT / "build" / "release"
LIB_DIR = Path(os.environ.get("GANTRY_LIB_DIR", BUILD / "lib"))
FAKE_DRIVER = LIB_DIR.parent / node_gpus.VENDORS["nvidia"].driver
SLOTS = 8
_CLONE_NEWNET = 0x40000000


@pytest.fixture(scope="session")
def node():
    """Up for the whole session, with the images of the tests; this process is in its network from now on."""
    node = Node()
    node.up(os.getpid())
    try:
        images = node.folder / "images"
        node.load(node_images.write_workload_image(images / "workload.tar", WORKLOAD_IMAGE, LIB_DIR / "libgantry.so", FAKE_DRIVER))
        node.load(os.environ["GANTRY_IMAGE"])
        _enter_network(node.first_pid())
        os.environ["PATH"] = f"{node.layout.binaries}:{os.environ['PATH']}"
        yield node
    finally:
        if not os.environ.get("KEEP"):
            node.down()


def _enter_network(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{pid}/ns/net") as namespace:
        if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")


@pytest.fixture(scope="session")
def cluster(node):
    return Cluster(node.kubeconfig)


@pytest.fixture(scope="session")
def node_files(node):
    return NodeFiles(node)


@pytest.fixture(scope="session")
def next_image(node, charts):
    """Gantry's image of another version, as values of a chart."""
    image = {**charts.image, "tag": charts.image["tag"] + "-next"}
    name = "{registry}/{repository}:{tag}".format(**image)
    node.load(node_images.write_next_version(node.folder / "images" / "next.tar", name, "99.0.0", os.environ["GANTRY_IMAGE"]))
    return {**image, "pullPolicy": "Never"}


class Charts:
    """Copies of the charts with their dependencies, and what the tests install of them."""

    def __init__(self, cluster, folder, image, pci_devices):
        self.cluster, self.folder, self.pci_devices = cluster, folder, pci_devices
        self.image = dict(zip(("registry", "repository", "tag"), _parts_of(image)))
        for variable in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"):
            os.environ[variable] = str(folder / "helm")
        shutil.copytree(ROOT / "charts", folder / "charts", ignore=shutil.ignore_patterns("*.tgz", "Chart.lock"))
        shutil.copytree(ROOT / "tests" / "kubernetes" / "workloads_chart", folder / "tests" / "kubernetes" / "workloads_chart")
        self.gantry = folder / "charts" / "gantry"
        self.example = self.gantry / "examples" / "inference"
        self.workloads = folder / "tests" / "kubernetes" / "workloads_chart"
        for chart in (self.gantry, self.example, self.workloads):
            cluster.helm("dependency", "update", "--skip-refresh", chart)

    def install(self, release, chart, namespace, values, *options):
        """Or upgrades."""
        file = self.folder / f"{release}.json"
        file.write_text(json.dumps(values))
        self.cluster.helm("upgrade", "--install", release, chart, "--namespace", namespace, *options, "--values", file)

    def uninstall(self, release, namespace):
        self.cluster.helm("uninstall", release, "--namespace", namespace, "--wait", "--timeout", "60s", "--ignore-not-found")

    def values(self):
        """The sidecar's image is that of the plugin, as nothing else is said of it."""
        sidecar = {"resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}}
        pci_devices = {"name": "pci-devices", "hostPath": {"path": str(self.pci_devices)}}
        mount = {"name": pci_devices["name"], "mountPath": node_gpus.PCI_DEVICES, "readOnly": True}
        return {"slots": SLOTS, "image": {**self.image, "pullPolicy": "Never"}, "reconcileMs": 1000, "sidecar": sidecar,
                "extraVolumes": [pci_devices], "extraVolumeMounts": [mount]}

    def install_gantry(self, **values):
        """The device plugin; returns when it has given the node its slots."""
        values = {**self.values(), **values}
        self.install("gantry", self.gantry, "gantry", values)
        # Until the daemon set's controller has seen the new values, the plugin before is there and ready.
        self.cluster.kubectl("rollout", "status", "daemonset/gantry", "--namespace", "gantry", "--timeout=60s")
        self.cluster.wait_until_ready("gantry", PLUGIN_LABELS)
        self.cluster.wait_for_allocatable(values["slots"])


def _parts_of(image):
    name, _, tag = image.rpartition(":")
    registry, _, repository = name.partition("/")
    return registry, repository, tag


@pytest.fixture(scope="session")
def charts(node, cluster, tmp_path_factory):
    pci_devices = node_gpus.pci_devices(node.folder)
    pci_devices.mkdir()
    return Charts(cluster, tmp_path_factory.mktemp("charts"), os.environ.get("GANTRY_IMAGE_NAME", "localhost/gantry:dev"), pci_devices)


@pytest.fixture(scope="session")
def installed(cluster, charts):
    """Gantry, once for all tests that leave it as it is."""
    cluster.make_namespace("gantry", "privileged")
    charts.install_gantry()
    return charts


@pytest.fixture(scope="session")
def gpu_pods_of(node, cluster, charts):
    """GPUs of a vendor on the node, from the first test on that asks for them; beside another vendor's."""
    started, processes = {}, []

    def gpus_of(name):
        if name not in started:
            started[name] = GpuPods(node_gpus.VENDORS[name], node, cluster, charts, LIB_DIR)
            processes.append(started[name].start())
        return started[name]

    yield gpus_of
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def fake_gpus(gpu_pods_of):
    return gpu_pods_of("nvidia")


_namespaces = itertools.count(1)


class Workloads:
    """Releases of the tests' chart in namespaces of this test."""

    def __init__(self, cluster, charts):
        self.cluster, self.charts, self.namespaces, self._releases = cluster, charts, [], itertools.count(1)

    def namespace(self, security="restricted"):
        name = f"test-{next(_namespaces)}"
        self.cluster.make_namespace(name, security)
        self.namespaces.append(name)
        return name

    def values(self, pods, gantry=None):
        library = {"image": {**self.charts.image, "pullPolicy": "Never"}, "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}},
                   "probes": {"startup": {"periodSeconds": 1}}, **(gantry or {})}
        return {"pods": {name: {"spec": engine_spec(), **pod} for name, pod in pods.items()}, "gantry-lib": library}

    def start(self, namespace, pods, gantry=None):
        """{name of the pod: {"spec", "gantry", "kind": "Job" or "StatefulSet"}}; the release's name."""
        release = f"workloads-{next(self._releases)}"
        self.upgrade(release, namespace, pods, gantry)
        return release

    def upgrade(self, release, namespace, pods, gantry=None):
        self.charts.install(release, self.charts.workloads, namespace, self.values(pods, gantry))

    def engines(self, namespace, pods, gantry=None):
        """Of pods that are started here: ready, each with the workload of its own name at its sidecar."""
        self.start(namespace, pods, gantry)
        return [self.engine(namespace, name) for name in pods]

    def engine(self, namespace, name):
        """Its container has started once: the sidecar was there before it."""
        pod = self.cluster.wait_until_ready(namespace, f"app={name}")[0]
        assert status_of(pod, "engine")["restartCount"] == 0, self.cluster.story_of(namespace)
        return Engine(pod)

    def pair(self, namespace, size=1 << 20, **options):
        """Two that know each other, each with a buffer "kv"."""
        pair = self.engines(namespace, {"a": dict(options), "b": dict(options)})
        for seed, engine in enumerate(pair):
            engine.do("allocate", "kv", size, seed)
        pair[0].connect(pair[1])
        return pair

    def close(self):
        """Their pods are gone when this returns."""
        for name in self.namespaces:
            for kind in ("batch/v1/namespaces/{}/jobs", "apps/v1/namespaces/{}/statefulsets"):
                self.cluster.api("DELETE", "/apis/" + kind.format(name), propagationPolicy="Background")
            self.cluster.api("DELETE", f"/api/v1/namespaces/{name}/pods")
            self.cluster.api("DELETE", f"/api/v1/namespaces/{name}")
        for name in self.namespaces:
            wait_for(lambda: not self.cluster.pods(name), 90, f"the end of the pods of {name}")


@pytest.fixture
def workloads(cluster, installed):
    workloads = Workloads(cluster, installed)
    yield workloads
    workloads.close()


@pytest.fixture(scope="session")
def record():
    """Puts a figure into the results: a line of the log, and of figures.json beside the JUnit files."""
    figures = {}

    def record(name, value, unit):
        figures[name] = {"value": value, "unit": unit}
        if folder := os.environ.get("RESULTS"):
            Path(folder, "figures.json").write_text(json.dumps(figures, indent=1))

    yield record
    for name, figure in figures.items():
        print(f"figure: {name}: {figure['value']:.4g} {figure['unit']}", file=sys.__stderr__)
