"""What the node's folder holds, and what it leaves elsewhere: keys, kubeconfigs, configurations, cgroups.

The configurations are for containerd 2, cgroups of version 1 or 2, and a machine without systemd.
"""

import json
import secrets
import shutil
import subprocess
from pathlib import Path

NAME = "gantry-node"
ADDRESS = "10.88.78.1"  # known in the node's network alone, as all of these
POD_SUBNET = "10.88.77.0/24"
SERVICE_SUBNET = "10.96.0.0/24"
API = f"https://{ADDRESS}:6443"
CGROUPS = Path("/sys/fs/cgroup")
CNI_PLUGINS = "/usr/lib/cni"
PAUSE_IMAGE = "localhost/pause:gantry-node"
# Who talks to the API server: file of its kubeconfig, user, group.
USERS = (("admin", "admin", "system:masters"), ("controllers", "system:kube-controller-manager", ""),
         ("scheduler", "system:kube-scheduler", ""), ("proxy", "system:kube-proxy", "system:node-proxier"),
         ("node", f"system:node:{NAME}", "system:nodes"))


def cgroup_parents():
    """Where a node makes its cgroup: in each hierarchy of version 1, or in the one of version 2."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path for path in CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]


class Layout:
    def __init__(self, folder):
        self.folder = folder
        self.keys, self.logs, self.pids = folder / "keys", folder / "logs", folder / "pids"
        self.holder, self.ready = folder / "holder", folder / "ready"
        self.containerd_socket = folder / "containerd.sock"

    @property
    def binaries(self):
        return Path((self.folder / "binaries").read_text())

    def kubeconfig(self, user):
        return self.folder / f"{user}.kubeconfig"

    def log(self, daemon):
        return self.logs / f"{daemon}.log"

    def pid(self, daemon):
        """Holds the daemon's PID inside of the node."""
        return self.pids / f"{daemon}.pid"

    def path(self):
        return f"{self.binaries}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    @property
    def cgroup(self):
        return (self.folder / "cgroup").read_text()

    def make(self, binaries, cgroup):
        """A fresh folder; images that were imported before are forgotten too."""
        for path in self.folder.iterdir():
            if path.name not in ("lock", "images"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in (self.keys, self.logs, self.pids, self.folder / "cni"):
            path.mkdir()
        (self.folder / "binaries").write_text(binaries)
        (self.folder / "cgroup").write_text(cgroup)
        self._make_keys()
        self._make_kubeconfigs()
        (self.folder / "containerd.toml").write_text(self._containerd())
        (self.folder / "kubelet.json").write_text(json.dumps(self._kubelet(), indent=1))
        (self.folder / "cni" / "10-gantry.conflist").write_text(json.dumps(self._network(), indent=1))

    def remove_what_is_left(self):
        """Folders of cgroups: all else went with the processes."""
        if not (self.folder / "cgroup").exists():
            return
        for top in self._cgroup_folders():
            for path in sorted(top.rglob("*"), key=lambda it: len(it.parts), reverse=True):
                if path.is_dir():
                    path.rmdir()
            top.rmdir()

    def cgroup_procs(self):
        if not (self.folder / "cgroup").exists():
            return
        for top in self._cgroup_folders():
            yield from top.rglob("cgroup.procs")

    def _cgroup_folders(self):
        return [path for path in (CGROUPS / self.cgroup, *CGROUPS.glob(f"*/{self.cgroup}")) if path.is_dir()]

    def _make_keys(self):
        def openssl(*arguments):
            subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=self.keys)
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=gantry-node",
                "-days", "30")
        names = ["DNS:kubernetes", "DNS:kubernetes.default", "DNS:kubernetes.default.svc", f"IP:{ADDRESS}", "IP:10.96.0.1", "IP:127.0.0.1"]
        (self.keys / "names").write_text("subjectAltName=" + ",".join(names))
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "api.key", "-out", "api.csr", "-subj", "/CN=kube-apiserver")
        openssl("x509", "-req", "-in", "api.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30",
                "-out", "api.crt", "-extfile", "names")
        openssl("genrsa", "-out", "accounts.key", "2048")
        openssl("rsa", "-in", "accounts.key", "-pubout", "-out", "accounts.pub")

    def _make_kubeconfigs(self):
        lines = []
        for name, user, group in USERS:
            token = secrets.token_hex(16)
            lines.append(f'{token},{user},{name},"{group}"')
            cluster = {"server": API, "certificate-authority": str(self.keys / "ca.crt")}
            self.kubeconfig(name).write_text(json.dumps({
                "apiVersion": "v1", "kind": "Config", "current-context": "node",
                "clusters": [{"name": "node", "cluster": cluster}], "users": [{"name": name, "user": {"token": token}}],
                "contexts": [{"name": "node", "context": {"cluster": "node", "user": name}}]}))
            self.kubeconfig(name).chmod(0o600)
        (self.folder / "tokens.csv").write_text("\n".join(lines) + "\n")

    def _containerd(self):
        return f"""version = 3
root = "{self.folder}/containerd"
state = "/run/containerd"
[grpc]
  address = "{self.containerd_socket}"
[plugins.'io.containerd.internal.v1.opt']
  path = "{self.folder}/opt"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{PAUSE_IMAGE}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{CNI_PLUGINS}"]
    conf_dir = "{self.folder}/cni"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
"""

    def _kubelet(self):
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{self.containerd_socket}",
            "address": ADDRESS, "port": 10250, "healthzBindAddress": "127.0.0.1", "readOnlyPort": 0,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},  # who reaches it is in the node's network
            "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{self.cgroup}", "failCgroupV1": False, "failSwapOn": False,
            "podCIDR": POD_SUBNET, "resolvConf": "", "clusterDomain": "cluster.local",
            "nodeStatusUpdateFrequency": "2s", "syncFrequency": "5s", "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "50Mi", "imagefs.available": "50Mi"},
            "localStorageCapacityIsolation": False,
        }

    def _network(self):
        ipam = {"type": "host-local", "ranges": [[{"subnet": POD_SUBNET}]], "routes": [{"dst": "0.0.0.0/0"}]}
        bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "ipMasq": True, "ipam": ipam}
        return {"cniVersion": "0.4.0", "name": "gantry", "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}]}

    def daemons(self):
        """Name, command line and, where others wait for it, what answers 200 when it is there; in the order of their start."""
        config = lambda user: f"--kubeconfig={self.kubeconfig(user)}"  # noqa: E731
        keys = self.keys
        yield "etcd", ["etcd", f"--data-dir={self.folder}/etcd", "--unsafe-no-fsync", "--listen-client-urls=http://127.0.0.1:2379",
                       "--advertise-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380"], None
        yield "containerd", ["containerd", f"--config={self.folder}/containerd.toml"], None
        yield "apiserver", [
            "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", f"--bind-address={ADDRESS}", f"--advertise-address={ADDRESS}",
            "--secure-port=6443", f"--tls-cert-file={keys}/api.crt", f"--tls-private-key-file={keys}/api.key",
            f"--client-ca-file={keys}/ca.crt", "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={keys}/accounts.pub", f"--service-account-signing-key-file={keys}/accounts.key",
            f"--service-cluster-ip-range={SERVICE_SUBNET}", f"--token-auth-file={self.folder}/tokens.csv",
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP"], f"{API}/readyz"
        yield "controllers", [
            "kube-controller-manager", config("controllers"), "--use-service-account-credentials=true",
            f"--service-account-private-key-file={keys}/accounts.key", f"--root-ca-file={keys}/ca.crt",
            f"--cluster-signing-cert-file={keys}/ca.crt", f"--cluster-signing-key-file={keys}/ca.key",
            "--bind-address=127.0.0.1", "--leader-elect=false"], None
        yield "scheduler", ["kube-scheduler", config("scheduler"), "--bind-address=127.0.0.1", "--leader-elect=false"], None
        yield "kubelet", ["kubelet", f"--config={self.folder}/kubelet.json", config("node"), f"--hostname-override={NAME}",
                          f"--node-ip={ADDRESS}", "--root-dir=/var/lib/kubelet", "--runtime-cgroups=/"], None
        yield "proxy", ["kube-proxy", config("proxy"), f"--hostname-override={NAME}", f"--cluster-cidr={POD_SUBNET}",
                        "--proxy-mode=iptables", "--metrics-bind-address=127.0.0.1:10249", "--healthz-bind-address=127.0.0.1:10256",
                        "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0",
                        "--conntrack-tcp-timeout-close-wait=0"], None
