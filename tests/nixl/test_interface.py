"""The table of virtual functions in NIXL's wheels, slot by slot, against that of the plugin."""

import re
import subprocess

import pytest
from agents import PLUGIN, REFUSED, SUPPORTED

PURE, NONE = "__cxa_pure_virtual", "-"


def run(*command, text=None):
    return subprocess.run(command, check=True, capture_output=True, text=True, input=text).stdout


def table_of(library, symbol):
    """Returns the function in each slot of a class's table, from the relocations of the library. Names are mangled."""
    addresses, table = {}, None
    for line in run("readelf", "-sW", library).splitlines():
        match = re.match(r"\s*\d+: ([0-9a-f]+)\s+(\S+) (\w+)\s+\w+\s+\w+\s+(\w+) (\S+)$", line)
        if match and match[4] != "UND":
            address, size, name = int(match[1], 16), int(match[2], 0), match[5].split("@")[0]
            addresses.setdefault(address, set()).add(name)
            if name == symbol:
                table = range(address, address + size, 8)
    assert table, f"{library} has no {symbol}"
    slots = {}
    for line in run("readelf", "-rW", library).splitlines():
        words = line.split()
        if len(words) >= 4 and re.fullmatch("[0-9a-f]{16}", words[0]) and int(words[0], 16) in table:
            if words[2] == "R_X86_64_RELATIVE":  # to a symbol that the library does not export
                slots[int(words[0], 16)] = addresses[int(words[3], 16)]
            else:
                slots[int(words[0], 16)] = {words[4].split("@")[0]}
    return [slots.get(address, {NONE}) for address in table][2:]  # the first are an offset and the type


def function_of(names):
    """("getNotifs", its parameter types with NIXL's names), without the class."""
    said = [run("c++filt", name).strip() for name in sorted(names)]
    for text in said:
        match = re.match(r".*?::(~?)(\w+)\((.*)\)", re.sub(r"<[^()]*>::", "::", text))
        if match:
            return "destructor" if match[1] else match[2], text.count("RemoteMetaDesc") > 0
    raise AssertionError(f"no function: {said}")


def functions_of(library, symbol):
    return [function_of(names) for names in table_of(library, symbol)]


@pytest.fixture(scope="module")
def ours():
    return functions_of(PLUGIN, "_ZTVN6gantry4nixl10NixlEngineE")


@pytest.mark.parametrize("wheel", SUPPORTED)
def test_the_table_of_functions_is_nixls(environment, ours, wheel):
    library = next((environment / wheel).glob(".nixl_cu*.mesonpy.libs/plugins/libplugin_POSIX.so"))
    base = table_of(library, "_ZTV17nixlBackendEngine")
    assert len(base) == len(ours)
    theirs = table_of(library, "_ZTV15nixlPosixEngine")
    for slot, names in enumerate(base):
        if names not in ({PURE}, {NONE}):
            assert function_of(names) == ours[slot], f"slot {slot}"
        assert function_of(theirs[slot]) == ours[slot], f"slot {slot}"


def test_the_refused_version_has_another_table(environment, ours):
    library = next((environment / REFUSED).glob(".nixl_cu*.mesonpy.libs/plugins/libplugin_POSIX.so"))
    assert functions_of(library, "_ZTV15nixlPosixEngine") != ours


def test_the_plugin_exports_two_functions_and_needs_the_c_library_alone():
    exported = [line.split()[-1] for line in run("nm", "-D", "--defined-only", PLUGIN).splitlines()]
    assert sorted(exported) == ["nixl_plugin_fini", "nixl_plugin_init"]
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", PLUGIN))
    assert set(needed) <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
