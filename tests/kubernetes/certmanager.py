"""The real cert-manager in the cluster, on and off by helm, and what it makes of the charts' objects."""

import time

from cluster import Refused, wait_for
from node_certmanager import NAME, helm_arguments, load_images

API = "/apis/cert-manager.io/v1"


class CertManager:
    """Its definitions come and go with it."""

    def __init__(self, node, cluster):
        self._node, self._cluster, self._loaded = node, cluster, False

    def is_there(self):
        """Whether the API server lists its kinds: what helm asks, too."""
        return self._cluster.api("GET", API) is not None

    def install(self):
        """Returns when its webhook answers: what is created then is checked by it."""
        if self.is_there():
            return
        if not self._loaded:
            load_images(self._node)
            self._loaded = True
        if self._cluster.api("GET", f"/api/v1/namespaces/{NAME}") is None:
            self._cluster.make_namespace(NAME, "restricted")
        self._cluster.helm(*helm_arguments())
        wait_for(self._webhook_answers, 60, lambda: f"the webhook of cert-manager\n{self._cluster.story_of(NAME)}")

    def _webhook_answers(self):
        try:
            self._cluster.api("POST", f"{API}/namespaces/default/issuers", {
                "apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": {"name": "dry"}, "spec": {"selfSigned": {}}}, dryRun="All")
        except Refused:
            return False
        return True

    def uninstall(self):
        self._cluster.helm("uninstall", NAME, "--namespace", NAME, "--wait", "--timeout", "60s", "--ignore-not-found")
        if self._cluster.api("GET", f"/api/v1/namespaces/{NAME}"):
            self._cluster.delete_namespace(NAME)
        wait_for(lambda: not self.is_there(), 60, "the end of cert-manager's definitions")

    # Its objects

    def all(self, namespace, kind):
        """Of a kind ("issuers", "certificates"): {name: object}."""
        listed = self._cluster.api("GET", f"{API}/namespaces/{namespace}/{kind}")
        return {it["metadata"]["name"]: it for it in (listed or {"items": []})["items"]}

    def unready(self, namespace):
        """What its conditions say of issuers and certificates that are not Ready."""
        found = [*self.all(namespace, "issuers").values(), *self.all(namespace, "certificates").values()]
        return {f"{it['kind']}/{it['metadata']['name']}": it.get("status", {}).get("conditions") for it in found
                if not any(each["type"] == "Ready" and each["status"] == "True" for each in it.get("status", {}).get("conditions", []))}

    def renew(self, namespace, name):
        """As `cmctl renew` does it."""
        path = f"{API}/namespaces/{namespace}/certificates/{name}"
        certificate = self._cluster.api("GET", path)
        issuing = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "by the test",
                   "lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        certificate["status"]["conditions"] = [it for it in certificate["status"]["conditions"] if it["type"] != "Issuing"] + [issuing]
        self._cluster.api("PUT", f"{path}/status", certificate)

    def make_cluster_issuer(self, name):
        """An authority for all namespaces, as an operator makes one."""
        def make(path, kind, name, spec):
            self._cluster.api("POST", API + path, {"apiVersion": "cert-manager.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
        make("/clusterissuers", "ClusterIssuer", f"{name}-self-signed", {"selfSigned": {}})
        make(f"/namespaces/{NAME}/certificates", "Certificate", name, {
            "isCA": True, "commonName": name, "secretName": name, "privateKey": {"algorithm": "ECDSA", "size": 256},
            "issuerRef": {"name": f"{name}-self-signed", "kind": "ClusterIssuer", "group": "cert-manager.io"}})
        make("/clusterissuers", "ClusterIssuer", name, {"ca": {"secretName": name}})
