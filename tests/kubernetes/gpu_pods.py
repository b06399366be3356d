"""Pods with GPUs of one vendor's fake driver: what the node, the workload and the sidecar need for them."""

import os
import subprocess
import sys
from pathlib import Path

import node_gpus
import node_images
from cluster import WORKLOAD_IMAGE, engine_spec


class GpuPods:
    """GPUs of one vendor's fake driver on the node, given out by a device plugin as real ones are, and pods that use them."""

    def __init__(self, vendor, node, cluster, charts, lib_dir):
        self.vendor, self.node, self.cluster, self.charts = vendor, node, cluster, charts
        self.lib_dir, self.driver = lib_dir, lib_dir.parent / vendor.driver
        self.memory = node.folder / f"gpus-of-{vendor.name}"
        self.image, self.workload_image = charts.image, WORKLOAD_IMAGE

    def start(self):
        """Returns the process of the device plugin, when the node has its GPUs."""
        self.memory.mkdir()
        self.memory.chmod(0o777)
        if not self.vendor.has_spec:
            self._load_images()
        program = Path(__file__).parent / "fake_gpu_plugin.py"
        command = [sys.executable, "-B", str(program), self.vendor.name, str(self.driver.resolve()), str(self.memory)]
        with open(self.node.layout.log(f"gpus-of-{self.vendor.name}"), "wb") as log:
            process = subprocess.Popen(self.node.inside(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.cluster.wait_for_allocatable(node_gpus.COUNT, self.vendor.resource)
        return process

    def _load_images(self):
        """Gantry's and the workload's, with the vendor's libraries in them."""
        self.image = {**self.charts.image, "tag": f"{self.charts.image['tag']}-{self.vendor.name}"}
        self.workload_image = f"{WORKLOAD_IMAGE}-{self.vendor.name}"
        name = "{registry}/{repository}:{tag}".format(**self.image)
        images, libraries = self.node.folder / "images", self.vendor.libraries(self.driver)
        self.node.load(node_images.write_on_top(images / f"gantry-{self.vendor.name}.tar", name, os.environ["GANTRY_IMAGE"],
                                                libraries, node_gpus.ENVIRONMENT))
        self.node.load(node_images.write_workload_image(
            images / f"workload-{self.vendor.name}.tar", self.workload_image, self.lib_dir / "libgantry.so", self.driver, libraries,
            [*node_gpus.ENVIRONMENT, f"LD_LIBRARY_PATH={self.vendor.libraries_in_image}", f"GPU_LIBRARY={self.driver.name}"]))

    def namespace(self, workloads):
        """With the GPUs' memory as a volume, where no spec mounts it: hardware needs none."""
        name = workloads.namespace()
        if not self.vendor.has_spec:
            size = {"storage": "1Gi"}
            volume = {"capacity": size, "accessModes": ["ReadWriteMany"], "hostPath": {"path": str(self.memory)},
                      "claimRef": {"namespace": name, "name": "gpu-memory"}}
            self.cluster.api("POST", "/api/v1/persistentvolumes", {"metadata": {"name": f"gpu-memory-{name}"}, "spec": volume})
            claim = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": f"gpu-memory-{name}",
                     "resources": {"requests": size}}
            self.cluster.api("POST", f"/api/v1/namespaces/{name}/persistentvolumeclaims", {"metadata": {"name": "gpu-memory"}, "spec": claim})
        return name

    def spec(self, count):
        """Of a workload's pod with that many GPUs."""
        if self.vendor.has_spec:
            return engine_spec(count, resource=self.vendor.resource)
        spec = engine_spec(count, resource=self.vendor.resource, image=self.workload_image, volumeMounts=[self._mount()])
        return {**spec, "volumes": [{"name": "gpu-memory", "persistentVolumeClaim": {"claimName": "gpu-memory"}}]}

    def gantry(self):
        """Values of the library chart for such pods."""
        more = {} if self.vendor.has_spec else {"extraVolumeMounts": [self._mount()]}
        return {"image": {**self.image, "pullPolicy": "Never"}, **more}

    def _mount(self):
        return {"name": "gpu-memory", "mountPath": node_gpus.MEMORY_IN_CONTAINER}
