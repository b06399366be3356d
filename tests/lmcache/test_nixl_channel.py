"""LMCache's own channel over NIXL, unchanged, with Gantry's backend for NIXL."""

import shutil

import pytest
from programs import LIB_DIR, Commands, free_port

PLUGIN = LIB_DIR / "libplugin_GANTRY.so"
SIZE = 64 << 20


@pytest.mark.skipif(b"adopt_private=no" not in PLUGIN.read_bytes(), reason="this plugin adopts no private memory")
def test_nixls_channel_takes_gantrys_backend(environment, folder, channels):
    plugins = folder / "plugins"
    plugins.mkdir()
    shutil.copy(PLUGIN, plugins)
    sides = []
    for name in ("nixl1", "nixl2"):
        sidecar = channels.sidecar(name)
        process = Commands(environment, folder, name, "channel_process.py", NIXL_PLUGIN_DIR=str(plugins), GANTRY_RUN_DIR=str(sidecar.run_dir))
        channels.stack.callback(process.kill)
        sides.append((process, f"127.0.0.1:{free_port()}"))
    for process, url in sides:
        process.open(url, {}, SIZE, engine="nixl", backends=["GANTRY"])
    (owner, url), (reader, _) = sides
    owner.shuffle(3)
    reader.fill(0, SIZE, 0)
    reader.connect(url)
    size = 40_960  # whole pages, which are what that channel moves
    mine = [(number * 65_536 + 4096, size) for number in range(200)]
    theirs = [(SIZE - (number + 1) * 81_920, size) for number in range(200)]
    assert reader.read(url, mine, theirs) == [True] * 200
    for (place, _), (other, _) in zip(mine, theirs):
        assert reader.bytes(place, size) == owner.bytes(other, size)
        assert reader.bytes(place - 4096, 4096) == bytes(4096) == reader.bytes(place + size, 4096)
    assert "take the path shm" in reader.log
