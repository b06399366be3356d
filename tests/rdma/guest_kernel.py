"""The kernel that tests/rdma/guest boots: a distribution's package, downloaded and unpacked, never installed.

What it makes is kept in $GANTRY_CACHE/rdma-guest (~/.cache/gantry/rdma-guest): the packages, the kernel as an ELF file,
which QEMU starts without a BIOS and without unpacking it under emulation, and an initramfs of busybox and some modules.
"""

import fcntl
import hashlib
import lzma
import os
import platform
import re
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path

# What the guest loads, in this order and each after what it depends on. Of those in MAY_BE_ABSENT a kernel may have none.
MODULES = ["virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console", "dummy", "veth", "sch_netem",
           "crc32_generic", "crc32c_generic", "ib_uverbs", "rdma_rxe"]
MAY_BE_ABSENT = {"crc32_generic", "crc32c_generic"}
# The packages that depend on the newest kernel: Debian's, Ubuntu's. The cloud variants have no RDMA.
NEWEST = ["linux-image-amd64", "linux-image-generic"]
PARTS = re.compile(r"^linux-(image|base|binary|modules|modules-extra)-\d")
# How long an initramfs is kept that no boot has used.
KEPT_S = 7 * 86400

INIT = Path(__file__).resolve().parent / "guest_init.sh"


class NoKernel(Exception):
    """There is no kernel to boot; says why and what to do."""


def folder():
    cache = os.environ.get("GANTRY_CACHE")
    if not cache:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gantry"
    return Path(cache) / "rdma-guest"


def tool(name, package):
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not found:
        raise NoKernel(f"{name} is not installed; run tools/setup test, or install the package {package}")
    return found


def apt(*arguments, **options):
    return subprocess.run([tool(arguments[0], "apt"), *arguments[1:]], capture_output=True, text=True, **options)


def update_lists():
    """True after fetching the package lists anew; only root can."""
    return os.geteuid() == 0 and apt("apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", "update").returncode == 0


def parts_of(package):
    """The packages that `package` depends on and that hold parts of a kernel."""
    listed = apt("apt-cache", "depends", "--no-recommends", "--no-suggests", package).stdout
    depends = re.findall(r"^\s*\|?Depends: (\S+)$", listed, re.MULTILINE)
    return [name for name in depends if PARTS.match(name)]


def extra_modules(package):
    """Ubuntu's kernels have RDMA in a package that only the newest one's depends on."""
    extra = package.replace("linux-image-", "linux-modules-extra-", 1)
    return [extra] if apt("apt-cache", "show", extra).returncode == 0 else []


def newest_kernel():
    for attempt in range(2):
        for package in NEWEST:
            for name in parts_of(package):
                if name.startswith("linux-image-"):
                    return name
        if attempt == 0 and not update_lists():
            break
    raise NoKernel(f"apt knows no kernel package ({' or '.join(NEWEST)}); run apt-get update as root, "
                   "or name a package in GANTRY_TEST_RDMA_KERNEL")


def download(package, to):
    """Leaves the package and the other parts of its kernel in the folder `to`."""
    to.mkdir(parents=True)
    for attempt in range(2):
        parts, todo = [], [package, *extra_modules(package)]
        while todo:
            parts.append(todo.pop())
            todo += [name for name in parts_of(parts[-1]) if name not in parts + todo]
        got = apt("apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *parts, cwd=to)
        if got.returncode == 0:
            return
        if attempt == 0 and not update_lists():
            break
    raise NoKernel(f"the kernel package {package} cannot be downloaded: {got.stderr.strip()}; run apt-get update as root and "
                   "look at the network, or name another package in GANTRY_TEST_RDMA_KERNEL")


def uncompressed(image):
    """The ELF file inside a bzImage; where it lies is in the header that the kernel's boot protocol defines."""
    setup_sectors = image[0x1F1] or 4
    payload_offset, payload_length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + payload_offset
    payload = image[start:start + payload_length - 4]  # the last four bytes are the length of the ELF file
    if payload.startswith(b"\xfd7zXZ"):
        return lzma.LZMADecompressor().decompress(payload)
    if payload.startswith(b"\x28\xb5\x2f\xfd"):
        return subprocess.run([tool("zstd", "zstd"), "-dcq"], input=payload, capture_output=True, check=True).stdout
    raise NoKernel(f"the kernel is packed in a way not known here (it begins with {payload[:4].hex()}); "
                   "name another package in GANTRY_TEST_RDMA_KERNEL")


def module_files(tree, release):
    """Paths of the modules to load, each after those it needs; what is built into the kernel has none."""
    files = []
    for module in MODULES:
        shown = subprocess.run([tool("modprobe", "kmod"), "-S", release, "-d", str(tree), "--show-depends", module],
                               capture_output=True, text=True)
        if shown.returncode != 0 and module not in MAY_BE_ABSENT:
            raise NoKernel(f"kernel {release} has no module {module}: {shown.stderr.strip()}; "
                           "name another package in GANTRY_TEST_RDMA_KERNEL")
        files += [path for path in re.findall(r"^insmod (\S+)", shown.stdout, re.MULTILINE) if path not in files]
    return files


def module_bytes(path):
    if path.endswith(".xz"):
        return lzma.decompress(Path(path).read_bytes())
    if path.endswith(".zst"):
        return subprocess.run([tool("zstd", "zstd"), "-dcq", path], capture_output=True, check=True).stdout
    return Path(path).read_bytes()


def write_initramfs(modules, work, to):
    tree = work / "initramfs"
    for name in ("proc", "sys", "dev", "modules", "lower", "upper", "root"):
        (tree / name).mkdir(parents=True)
    shutil.copy(tool("busybox", "busybox-static"), tree / "busybox")
    shutil.copy(INIT, tree / "init")
    (tree / "init").chmod(0o755)
    order = []
    for path in modules:
        order.append(re.sub(r"\.(xz|zst)$", "", Path(path).name))
        (tree / "modules" / order[-1]).write_bytes(module_bytes(path))
    (tree / "modules" / "order").write_text("".join(name + "\n" for name in order))
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    packed = subprocess.run([tool("cpio", "cpio"), "-o", "-H", "newc", "--quiet"], cwd=tree, input=names.encode(),
                            capture_output=True, check=True).stdout
    partial = to.with_suffix(".partial")
    partial.write_bytes(packed)
    partial.rename(to)


def build(packages, vmlinux, initramfs):
    with tempfile.TemporaryDirectory(dir=packages.parent) as name:
        work = Path(name)
        tree = work / "tree"
        for package in sorted(packages.glob("*.deb")):
            subprocess.run([tool("dpkg-deb", "dpkg"), "-x", str(package), str(tree)], check=True)
        if not (tree / "lib").exists():  # packages made for a merged /usr
            (tree / "lib").symlink_to("usr/lib")
        image = next(tree.glob("boot/vmlinuz-*"), None) or next(tree.rglob("vmlinuz*"), None)
        release = next((each.name for each in tree.glob("lib/modules/*")), None)
        if image is None or release is None:
            raise NoKernel(f"{packages} holds no kernel or no modules; remove it, or set GANTRY_TEST_RDMA_KERNEL")
        subprocess.run([tool("depmod", "kmod"), "-b", str(tree), release], check=True)
        write_initramfs(module_files(tree, release), work, initramfs)
        (work / "vmlinux").write_bytes(uncompressed(image.read_bytes()))
        (work / "vmlinux").rename(vmlinux)


def prepare():
    """Returns the paths of the kernel and of the initramfs; makes them at the first use."""
    if platform.machine() != "x86_64":
        raise NoKernel(f"the guest runs this machine's programs, and is made for x86_64, not for {platform.machine()}")
    cache = folder()
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        named = cache / "default-kernel"
        package = os.environ.get("GANTRY_TEST_RDMA_KERNEL") or (named.read_text().strip() if named.exists() else newest_kernel())
        kernel = cache / package
        key = hashlib.sha256(INIT.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:16]
        vmlinux, initramfs = kernel / "vmlinux", kernel / f"initramfs-{key}"
        if not (vmlinux.exists() and initramfs.exists()):
            packages = kernel / "packages"
            if not packages.exists():
                partial = kernel / "partial"
                shutil.rmtree(partial, ignore_errors=True)
                download(package, partial)
                partial.rename(packages)
            # Not younger ones: another checkout may be about to boot one.
            for old in kernel.glob("initramfs-*"):
                if old.stat().st_mtime < time.time() - KEPT_S:
                    old.unlink()
            build(packages, vmlinux, initramfs)
        if "GANTRY_TEST_RDMA_KERNEL" not in os.environ:
            named.write_text(package + "\n")
    os.utime(initramfs)
    return vmlinux, initramfs
