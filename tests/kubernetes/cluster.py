"""What the tests do with a cluster: objects of its API, charts by helm, pods of the tests and what runs in them."""

import json
import re
import subprocess
import time
import urllib.request
import xmlrpc.client

import requests

from node_layout import API, NAME

TRANSFER = "gantry.dev/transfer"
SIDECAR = "gantry-sidecar"
PLUGIN_LABELS = "app.kubernetes.io/name=gantry,app.kubernetes.io/component=device-plugin"
WORKLOAD_IMAGE = "localhost/gantry-workload:test"
WORKLOAD_PORT = 8000
READY_SECONDS = 60
# As Pod Security "restricted" asks.
RESTRICTED = {"runAsNonRoot": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
              "seccompProfile": {"type": "RuntimeDefault"}}


def wait_for(condition, seconds, what):
    """The first true value of `condition`, asked again and again; `what`: text, or what makes it."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what() if callable(what) else what}: not within {seconds} s")
        time.sleep(0.05)


class Refused(Exception):
    """What the API server or helm said instead."""


class Cluster:
    """Used by threads that are in the node's network."""

    def __init__(self, kubeconfig):
        self.kubeconfig = str(kubeconfig)
        config = json.loads(kubeconfig.read_text())
        self._session = requests.Session()
        self._session.trust_env = False  # this machine's authorities and proxies are not the node's
        self._session.verify = config["clusters"][0]["cluster"]["certificate-authority"]
        self._session.headers["Authorization"] = "Bearer " + config["users"][0]["user"]["token"]

    def api(self, method, path, body=None, **parameters):
        """An object, or text; None when there is none."""
        answer = self._session.request(method, API + path, json=body, params=parameters, timeout=30)
        if answer.status_code == 404 and method != "POST":
            return None
        if answer.status_code >= 300:
            raise Refused(f"{method} {path}: {answer.text}")
        return answer.json() if "json" in answer.headers["Content-Type"] else answer.text

    def kubectl(self, *arguments, **options):
        return _run(["kubectl", f"--kubeconfig={self.kubeconfig}", *arguments], **options)

    def helm(self, *arguments, **options):
        return _run(["helm", f"--kubeconfig={self.kubeconfig}", *map(str, arguments)], **options)

    def refusal(self, program, *arguments):
        """What helm or kubectl says that has to fail."""
        try:
            said = getattr(self, program)(*arguments)
        except Refused as refused:
            return str(refused)
        raise AssertionError(f"{program} {' '.join(map(str, arguments))} succeeded: {said}")

    # Namespaces and the node

    def make_namespace(self, name, security="restricted"):
        labels = {"pod-security.kubernetes.io/enforce": security}
        self.api("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        wait_for(lambda: self.api("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default"), 20, f"the account of {name}")

    def delete_namespace(self, name):
        self.api("DELETE", f"/api/v1/namespaces/{name}")
        wait_for(lambda: self.api("GET", f"/api/v1/namespaces/{name}") is None, 90, f"the end of namespace {name}")

    def allocatable(self, resource=TRANSFER):
        """-1: the node does not know it."""
        return int(self.api("GET", f"/api/v1/nodes/{NAME}")["status"]["allocatable"].get(resource, -1))

    def wait_for_allocatable(self, count, resource=TRANSFER, seconds=30):
        wait_for(lambda: self.allocatable(resource) == count, seconds,
                 lambda: f"{count} of {resource} ({self.allocatable(resource)} now)")

    # Pods

    def pod(self, namespace, name):
        return self.api("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")

    def pods(self, namespace, labels=""):
        return self.api("GET", f"/api/v1/namespaces/{namespace}/pods", labelSelector=labels)["items"]

    def wait_until_ready(self, namespace, labels="", count=1, seconds=READY_SECONDS):
        def ready():
            pods = [pod for pod in self.pods(namespace, labels) if "deletionTimestamp" not in pod["metadata"]]
            return pods if len(pods) == count and all(map(is_ready, pods)) else None
        return wait_for(ready, seconds, lambda: f"{count} ready pods {namespace}/{labels}\n{self.story_of(namespace)}")

    def delete_pod(self, namespace, name, wait=True):
        uid = (self.pod(namespace, name) or {}).get("metadata", {}).get("uid")
        self.api("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}")
        if wait:
            wait_for(lambda: (self.pod(namespace, name) or {}).get("metadata", {}).get("uid") != uid, 60, f"the end of pod {name}")

    def log(self, namespace, pod, container, previous=False):
        return self.api("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}/log", container=container, previous=previous) or ""

    def events(self, namespace):
        items = self.api("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
        return [f"{it['involvedObject']['name']}: {it['reason']}: {it['message']}" for it in items]

    def story_of(self, namespace):
        """What is known of a namespace's pods, for a failure."""
        lines = []
        for pod in self.pods(namespace):
            lines.append(f"{pod['metadata']['name']}: {pod['status'].get('phase')} {pod['status'].get('reason', '')}")
            for status in statuses_of(pod):
                lines.append(f"  {status['name']}: {json.dumps(status['state'])}")
                try:
                    lines += ["    " + line for line in self.log(namespace, pod["metadata"]["name"], status["name"]).splitlines()[-8:]]
                except Refused:
                    pass  # has not started
        return "\n".join(lines + self.events(namespace)[-12:])

    # Metrics

    def metrics(self, pod, port):
        """{series: value} of a pod."""
        with urllib.request.urlopen(f"http://{pod['status']['podIP']}:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line and line[0] != "#"}

    def plugin_metrics(self):
        return self.metrics(self.plugin(), 9465)

    def plugin(self):
        return self.wait_until_ready("gantry", PLUGIN_LABELS)[0]


def _run(command, input=None, seconds=120):
    done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=seconds)
    if done.returncode != 0:
        raise Refused(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def is_ready(pod):
    return any(it["type"] == "Ready" and it["status"] == "True" for it in pod["status"].get("conditions", []))


def statuses_of(pod):
    return [*pod["status"].get("initContainerStatuses", []), *pod["status"].get("containerStatuses", [])]


def status_of(pod, container):
    return next((it for it in statuses_of(pod) if it["name"] == container), None)


def engine_spec(gpus=0, seconds=5, resource="nvidia.com/gpu", **container):
    """A workload's pod as it is without Gantry."""
    limits = {"memory": "256Mi", **({resource: gpus} if gpus else {})}
    engine = {"name": "engine", "image": WORKLOAD_IMAGE, "imagePullPolicy": "Never", "securityContext": RESTRICTED,
              "resources": {"limits": limits, "requests": {"cpu": "10m", "memory": "32Mi"}},
              "readinessProbe": {"tcpSocket": {"port": WORKLOAD_PORT}, "periodSeconds": 1}, **container}
    return {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": seconds, "containers": [engine]}


class _Transport(xmlrpc.client.Transport):
    def __init__(self, seconds):
        super().__init__()
        self._seconds = seconds

    def make_connection(self, host):
        connection = super().make_connection(host)
        connection.timeout = self._seconds
        return connection


class Engine:
    """The program in a workload's container (workload_program.py), by the address of its pod."""

    def __init__(self, pod, seconds=40):
        self.seconds = seconds  # that a call may take
        self.namespace, self.pod = pod["metadata"]["namespace"], pod["metadata"]["name"]
        self.address = pod["status"]["podIP"]

    def do(self, command, *arguments):
        # One connection a call: threads may share this.
        with xmlrpc.client.ServerProxy(f"http://{self.address}:{WORKLOAD_PORT}", allow_none=True, transport=_Transport(self.seconds)) as program:
            return getattr(program, command)(*arguments)

    def rest(self, method, target, body=None):
        """(status, object) as the sidecar answers over REST, asked from inside of the container."""
        status, text = self.do("rest", method, target, body)
        return status, json.loads(text) if re.match(r"\s*[{\[]", text) else text

    def connect(self, other, over="unix"):
        """Names the other's sidecar to this one's: by its socket in the namespace's folder, or by its address."""
        address = f"unix:/run/gantry/peers/{other.pod}.peer.sock" if over == "unix" else f"{other.address}:9461"
        status, peer = self.rest("PUT", f"/v1/peers/{other.pod}", {"address": address})
        assert status in (200, 201) and peer["state"] == "up", peer

    def move(self, operation, local, remote, size, wait_ms=20_000, **fields):
        body = {"workload": self.pod, "op": operation, "local": [local], "remote": [remote], "ranges": [[0, 0, 0, 0, size]], **fields}
        return self.rest("POST", f"/v1/transfers?wait_ms={wait_ms}", body)
