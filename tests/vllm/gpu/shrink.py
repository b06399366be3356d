"""Zeroes the code for other GPUs in a CUDA library, so that it packs small: shrink.py IN OUT.

A fat binary with code for ARCHITECTURE keeps that alone. Another one keeps its newest PTX that ARCHITECTURE can run.
"""

import struct
import sys

ARCHITECTURE = 90  # H100, H200
_MAGIC = struct.pack("<I", 0xBA55ED50)
_HEADER = struct.Struct("<IHHQ")  # magic, version, length of the header, length of the entries
_ENTRY = struct.Struct("<HHIQ")  # kind, version, length of the header, length of the code
_ARCHITECTURE_AT = 28
_PTX, _CUBIN = 1, 2


def entries_of(library, start, end):
    """(kind, architecture, offset, length) of each entry of a fat binary."""
    at = start
    while at < end:
        kind, _, header, length = _ENTRY.unpack_from(library, at)
        if kind not in (_PTX, _CUBIN) or not 32 <= header <= 512:
            return
        architecture, = struct.unpack_from("<I", library, at + _ARCHITECTURE_AT)
        yield kind, architecture, at + header, length
        at += header + length


def kept_of(entries):
    """The (kind, architecture) that is kept, or None."""
    kinds = {(kind, architecture) for kind, architecture, _, _ in entries}
    if (_CUBIN, ARCHITECTURE) in kinds:
        return _CUBIN, ARCHITECTURE
    return max(((kind, each) for kind, each in kinds if kind == _PTX and each <= ARCHITECTURE), default=None)


def shrink(library):
    at = library.find(_MAGIC)
    while at >= 0:
        _, version, header, length = _HEADER.unpack_from(library, at)
        end = at + header + length
        if version != 1 or header != _HEADER.size or end > len(library):
            end = at + len(_MAGIC)
        else:
            entries = list(entries_of(library, at + header, end))
            kept = kept_of(entries)
            for kind, architecture, offset, size in entries:
                if (kind, architecture) != kept:
                    library[offset:offset + size] = bytes(size)
        at = library.find(_MAGIC, end)


def main():
    source, target = sys.argv[1:]
    with open(source, "rb") as file:
        library = bytearray(file.read())
    shrink(library)
    with open(target, "wb") as file:
        file.write(library)


if __name__ == "__main__":
    main()
