"""Reads an image archive as "docker save" writes it: its configuration, and the file system that its layers make."""

import io
import json
import tarfile


class ImageArchive:
    def __init__(self, path):
        with tarfile.open(path) as archive:
            manifest = json.load(archive.extractfile("manifest.json"))[0]
            self.names = manifest["RepoTags"]
            self.configuration_file = manifest["Config"]
            self.facts = json.load(archive.extractfile(manifest["Config"]))
            self.layers = [archive.extractfile(layer).read() for layer in manifest["Layers"]]
        self.configuration = self.facts["config"]
        self.labels = self.configuration["Labels"]

    def files(self):
        """{path without a leading slash: (entry, bytes or None)}; the layers of Gantry's image remove nothing."""
        found = {}
        for layer in self.layers:
            with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
                for entry in archive:
                    content = archive.extractfile(entry).read() if entry.isfile() else None
                    found[entry.name.strip("/")] = (entry, content)
        return found

    def unpack(self, folder):
        for layer in self.layers:
            with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
                archive.extractall(folder)
