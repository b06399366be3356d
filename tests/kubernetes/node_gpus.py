"""GPUs of the fake drivers on the node, of two vendors: their names, their device files, and what a vendor's plugin gives a container.

Nothing of the machine's own /dev and /sys is touched: what a vendor's modules and tools make is made in the node's mounts.
"""

import json
import os
import stat
import subprocess
from pathlib import Path

COUNT = 4
MEMORY_IN_CONTAINER = "/run/fake-gpus"
PCI_DEVICES = "/sys/bus/pci/devices"
NULL = os.makedev(1, 3)  # behind every device file: the fakes look whether they are there
# For every process that loads a fake: it sees the GPUs whose device files it has.
ENVIRONMENT = [f"GANTRY_FAKE_GPUS={COUNT}", f"GANTRY_FAKE_GPU_DIR={MEMORY_IN_CONTAINER}", "GANTRY_FAKE_GPU_DEV=/dev"]


# Messages in the wire format of protocol buffers.

def field(number, value):
    """A string, or a message that is bytes already."""
    data = value.encode() if isinstance(value, str) else value
    length, size = bytearray(), len(data)
    while True:
        length.append(size & 0x7F | (0x80 if size > 0x7F else 0))
        size >>= 7
        if not size:
            break
    return bytes([number << 3 | 2]) + bytes(length) + data


class Nvidia:
    """Named by UUID. A CDI spec has what a container gets: the device file, the driver, and a marker that tells the tests of the spec."""

    name, resource, has_spec = "nvidia", "nvidia.com/gpu", True
    driver = "fake_gpu/libcuda.so.1"  # below the folder of a build
    own_files, shared_files = "nvidia*", []  # below /dev
    marker = "MARKER_OF_GPU_"

    def gpu_id(self, number):
        """As the fake driver makes them."""
        return f"GPU-fafafafa-fafa-fafa-fafa-fafafafafa{number:02x}"

    def id_of_file(self, name):
        return self.gpu_id(int(name.removeprefix("nvidia")))

    def put_on_node(self, folder, driver):
        def device(number):
            node = {"path": f"/dev/nvidia{number}", "hostPath": "/dev/null", "permissions": "rw"}
            edits = {"deviceNodes": [node], "env": [f"{self.marker}{number}={self.gpu_id(number)}"]}
            return {"name": self.gpu_id(number), "containerEdits": edits}

        def mount(host, container, option):
            return {"hostPath": str(host), "containerPath": container, "options": ["bind", "nosuid", "nodev", option]}
        mounts = [mount(driver, "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "ro"), mount(folder, MEMORY_IN_CONTAINER, "rw")]
        spec = Path("/etc/cdi/nvidia.json")
        spec.parent.mkdir(parents=True, exist_ok=True)
        spec.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": self.resource, "devices": [device(number) for number in range(COUNT)],
                                    "containerEdits": {"env": ENVIRONMENT, "mounts": mounts}}, indent=1))

    def answer(self, gpu_ids):
        """What a container is given, as ContainerAllocateResponse: names of CDI devices."""
        return b"".join(field(5, field(1, f"{self.resource}={gpu_id}")) for gpu_id in gpu_ids)


class Amd:
    """Named by PCI address. There is no CDI spec: a container gets device files, has the libraries in its image, and sysfs knows the rest."""

    name, resource, has_spec = "amd", "amd.com/gpu", False
    driver = "fake_gpu_amd/rocm7/libamdhip64.so.7"
    own_files, shared_files = "dri/renderD*", ["kfd"]
    # Where the variant of Gantry's image for AMD has them, too.
    libraries_in_image = "/opt/rocm/lib"

    def gpu_id(self, number):
        return f"0000:{0xc1 + number:02x}:00.0"

    def id_of_file(self, name):
        return self.gpu_id(int(name.removeprefix("dri/renderD")) - 128)

    def files_of(self, number):
        return [f"dri/card{number}", f"dri/renderD{128 + number}"]

    def put_on_node(self, folder, driver):
        del driver  # is in the images
        dev = _dev_of_the_node(folder.parent / "dev")
        (dev / "dri").mkdir(exist_ok=True)
        for name in (*self.shared_files, *(name for number in range(COUNT) for name in self.files_of(number))):
            (dev / name).unlink(missing_ok=True)
            os.mknod(dev / name, stat.S_IFCHR | 0o660, NULL)  # root's and a group's alone, as distributions have it
        for number in range(COUNT):
            device = pci_devices(folder.parent) / self.gpu_id(number)
            for name in self.files_of(number):
                (device / "drm" / Path(name).name).mkdir(parents=True, exist_ok=True)
            (device / "vendor").write_text("0x1002\n")

    def answer(self, gpu_ids):
        """Names of device files."""
        numbers = [number for number in range(COUNT) if self.gpu_id(number) in gpu_ids]
        files = [*self.shared_files, *(name for number in numbers for name in self.files_of(number))]
        return b"".join(field(3, field(1, f"/dev/{name}") + field(2, f"/dev/{name}") + field(3, "rw")) for name in files)

    def libraries(self, driver):
        """{path in an image: file}: the fakes, by the names that programs ask for."""
        return {f"{self.libraries_in_image}/{path.name}": path.resolve() for path in driver.parent.glob("*.so.*")}


VENDORS = {vendor.name: vendor for vendor in (Nvidia(), Amd())}


def pci_devices(folder):
    """Below a node's folder: what Gantry's plugin has for PCI_DEVICES, the machine's own devices being none of the node's."""
    return folder / "pci-devices"


def _dev_of_the_node(folder):
    """Lays a cover over /dev in this mount namespace, so that device files are made in the node alone."""
    dev, kept = Path("/dev"), folder / "kept"
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    mounted = sorted({Path(line.split()[4]) for line in lines if Path(line.split()[4]).parent == dev and os.path.isdir(line.split()[4])})
    for path in (folder / "upper", folder / "work", *(kept / it.name for it in mounted)):
        path.mkdir(parents=True)
    for path in mounted:
        _mount("--bind", path, kept / path.name)
    _mount("-t", "overlay", "-o", f"lowerdir={dev},upperdir={folder}/upper,workdir={folder}/work", "overlay", dev)
    for path in mounted:
        _mount("--bind", kept / path.name, path)
        subprocess.run(["umount", kept / path.name], check=True)
    return dev


def _mount(*words):
    subprocess.run(["mount", *map(str, words)], check=True)
