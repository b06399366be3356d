"""Images for the node, written as archives without a registry and without a builder: what they hold comes from this machine."""

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from image_archive import ImageArchive  # noqa: E402

PYTHON = Path("/usr/bin/python3")
# Links of a merged /usr, as programs expect them.
FOLDERS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
SHELL_PROGRAMS = ("sh", "sleep", "cat", "ls", "env", "kill", "ps", "true", "false", "id", "stat", "find", "grep")
LEFT_OUT = {"test", "idlelib", "tkinter", "lib2to3", "ensurepip", "pydoc_data", "turtledemo", "__pycache__", "dist-packages"}


def needed_libraries(*programs):
    """Files of the shared libraries that these need, the loader included, by the paths at which programs look for them."""
    found = {}
    for program in programs:
        listed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        if missing := re.findall(r"(\S+) => not found", listed):
            raise RuntimeError(f"{program} needs {' '.join(missing)}, which this machine has not")
        for path in re.findall(r"(/\S+) \(0x", listed):
            folder, name = os.path.split(path)
            found[os.path.join(_merged(folder), name)] = Path(path).resolve()
    return found


def _merged(folder):
    first, _, rest = folder.strip("/").partition("/")
    return "/" + (f"{FOLDERS[first]}/{rest}".rstrip("/") if first in FOLDERS else folder.strip("/"))


def shell():
    """A shell and what scripts use, of one static program."""
    files = {"/usr/bin/busybox": Path("/bin/busybox").resolve()}
    return files, {f"/usr/bin/{name}": "busybox" for name in SHELL_PROGRAMS}


def python():
    """The distribution's Python and its standard library."""
    program = PYTHON.resolve()
    asked = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    library = Path(subprocess.run([PYTHON, "-c", asked], check=True, capture_output=True, text=True).stdout.strip())
    files = {str(program): program}
    for path in library.rglob("*"):
        if path.is_file() and not LEFT_OUT & set(path.relative_to(library).parts):
            files[str(path)] = path
    modules = [path for path in files if path.endswith(".so")]
    return files | needed_libraries(program, *modules), {"/usr/bin/python3": program.name}


def write_image(archive, name, files, links=(), **config):
    """One layer: `files` is {path: file or bytes}, `links` {path: target}. `config` as in an image's configuration (Entrypoint, Env, User)."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        def add(path, type_, mode, data=b"", target=""):
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.type, entry.mode, entry.size, entry.linkname = type_, mode, len(data), target
            tar.addfile(entry, io.BytesIO(data))
        folders = {"/etc", "/tmp", "/run", "/usr", *(f"/{it}" for it in FOLDERS.values())}
        for path in (*files, *dict(links)):
            folders |= {str(it) for it in Path(path).parents} - {"/"}
        for path in sorted(folders):
            add(path, tarfile.DIRTYPE, 0o1777 if path == "/tmp" else 0o755)
        for path, target in FOLDERS.items():
            add(path, tarfile.SYMTYPE, 0o777, target=target)
        for path, source in sorted(files.items()):
            data, mode = (source, 0o644) if isinstance(source, bytes) else (source.read_bytes(), 0o755 if os.access(source, os.X_OK) else 0o644)
            add(path, tarfile.REGTYPE, mode, data)
        for path, target in dict(links).items():
            add(path, tarfile.SYMTYPE, 0o777, target=target)
    return _write_archive(archive, name, [layer.getvalue()], {
        "architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/usr/bin:/usr/sbin"], **config}, "history": [{}]})


def _write_archive(archive, name, layers, settings):
    """As docker-archive has it; `settings` lacks the layers' digests."""
    digests = [hashlib.sha256(layer).hexdigest() for layer in layers]
    settings = json.dumps(settings | {"rootfs": {"type": "layers", "diff_ids": [f"sha256:{it}" for it in digests]}}).encode()
    settings_name = hashlib.sha256(settings).hexdigest() + ".json"
    files = {f"{digest}.tar": layer for digest, layer in zip(digests, layers)} | {settings_name: settings}
    files["manifest.json"] = json.dumps([{"Config": settings_name, "RepoTags": [name], "Layers": list(files)[:len(layers)]}]).encode()
    archive = Path(archive)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w") as tar:
        for path, data in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return archive


def write_on_top(archive, name, base, files, environment=(), labels=()):
    """Of the image in the archive `base` another one with a layer more: `files` as in write_image, in folders that may be there."""
    image = ImageArchive(base)
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for path, source in sorted(files.items()):
            data = source if isinstance(source, bytes) else source.read_bytes()
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    config = {**image.configuration, "Env": [*image.configuration["Env"], *environment], "Labels": {**image.labels, **dict(labels)}}
    history = [*image.facts.get("history", []), {"created_by": "the tests"}]
    return _write_archive(archive, name, [*image.layers, layer.getvalue()], image.facts | {"config": config, "history": history})


def write_next_version(archive, name, version, base):
    """As the next version of an image is: labels say which."""
    return write_on_top(archive, name, base, {"/usr/share/gantry-version": version.encode()},
                        labels={"org.opencontainers.image.version": version})


def write_pause_image(archive, name, work):
    """The program that holds a pod's namespaces, built here."""
    program = Path(work) / "pause"
    subprocess.run(["gcc", "-O2", "-static", "-o", program, Path(__file__).parent / "pause.c"], check=True)
    return write_image(archive, name, {"/pause": program}, Entrypoint=["/pause"], User="65535:65535")


def write_engine_image(archive, name, library):
    """What examples/stand_in_engine.Dockerfile makes, of this machine's Python."""
    files, links = python()
    client = ROOT / "client" / "python" / "gantry"
    files |= needed_libraries(library) | {"/opt/gantry/libgantry.so.0": Path(library).resolve()}
    files |= {f"/opt/gantry/gantry/{path.relative_to(client)}": path for path in client.rglob("*.py")}
    files |= {"/opt/gantry/stand_in_engine.py": ROOT / "examples" / "stand_in_engine.py"}
    return write_image(archive, name, files, links, User="1000:1000",
                       Env=["PATH=/usr/bin", "PYTHONPATH=/opt/gantry", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1",
                            "GANTRY_LIBRARY=/opt/gantry/libgantry.so.0"],
                       Entrypoint=["python3", "/opt/gantry/stand_in_engine.py"])


def write_workload_image(archive, name, library, driver, more_files=(), environment=()):
    """Python, Gantry's client and the program that tests drive; `library`: libgantry.so; `driver` is mounted or among `more_files`."""
    files, links = shell()
    python_files, python_links = python()
    brought = {Path(path).name for path in dict(more_files)}
    needed = {path: file for path, file in needed_libraries(library, driver).items() if Path(path).name not in brought}
    files |= python_files | needed | {"/opt/gantry/libgantry.so": Path(library).resolve()}
    client = ROOT / "client" / "python" / "gantry"
    files |= {f"/opt/gantry/gantry/{path.relative_to(client)}": path for path in client.rglob("*.py")}
    files |= {"/opt/gantry/workload_program.py": Path(__file__).parent / "workload_program.py",
              "/opt/gantry/gpu_driver.py": ROOT / "tests" / "end_to_end" / "gpu_driver.py",
              "/etc/passwd": b"root:x:0:0::/:/bin/sh\nworkload:x:1000:1000::/tmp:/bin/sh\n"}
    return write_image(archive, name, files | dict(more_files), links | python_links, User="1000:1000",
                       Env=["PATH=/usr/bin", "PYTHONPATH=/opt/gantry", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1",
                            "GANTRY_LIBRARY=/opt/gantry/libgantry.so", *environment],
                       Entrypoint=["python3", "-m", "workload_program"])
