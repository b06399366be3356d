"""Lives and deaths around the Python package: closed, killed, forked, restarted, collected, interrupted."""

import gc
import itertools
import os
import signal
import subprocess
import threading
import time
import weakref

import pytest

from conftest import ROOT
from python_client_parts import (BLOCK, arena, buffers_at, client, code_of, gantry, pair, run_script,  # noqa: F401
                                 wait_until)


def test_a_closed_client_answers(client, arena, sidecar):
    buffer = client.register("b", arena.view(0, 10))
    client.check()
    client.close()
    client.close()
    assert not buffer.registered and buffers_at(sidecar) == []
    for call in (client.check, lambda: client.arena(1), lambda: client.register("c", arena), client.poll_events,
                 lambda: client.read(buffer, "x/y", ranges=[(0, 0, 0, 0, 1)])):
        assert code_of(call) in ("cancelled", "unregistered")
    buffer.unregister()
    arena.close()
    assert code_of(gantry.Client, "/nonexistent", "w") == "peer_unavailable"


def test_two_clients_cannot_have_one_name(client, sidecar):
    assert code_of(gantry.Client, sidecar.run_dir, "w", engine_id="another") == "conflict"
    client.check()


def test_objects_may_go_in_any_order(sidecar):
    for order in itertools.permutations(range(4)):
        client = gantry.Client(sidecar.run_dir, "w")
        arena = client.arena(4096)
        view = arena.view(10, 100)
        things = [client, arena, view, client.register("b", view)]
        del client, arena, view
        for index in order:
            things[index] = None
        assert wait_until(lambda: buffers_at(sidecar) == [])


def test_a_process_that_just_ends_says_nothing(sidecar):
    code, out, err = run_script("""
        import gantry, sys
        client = gantry.Client(sys.argv[1], "w")
        arena = client.arena(4096)
        view = memoryview(arena)
        buffer = client.register("b", view)
        loop = [client, arena, buffer]
        loop.append(loop)
        """, sidecar.run_dir)
    assert (code, out, err) == (0, "", "")
    assert wait_until(lambda: buffers_at(sidecar) == [])


STOPPED = """
    import contextlib, gantry, os, signal, sys, time
    run_dir, pid, count, clients = sys.argv[1], *map(int, sys.argv[2:5])
    kept = []
    for i in range(clients):
        client = gantry.Client(run_dir, f"w{i}", timeout=1.0)
        arena = client.arena(count * 4096)
        kept += [client, arena, client.timeline()]
        kept += [client.register(f"b{k}", arena.view(k * 4096, 4096), layout=gantry.Layout(4096)) for k in range(count)]
        kept.append(client.view(f"w{i}"))
    del client, arena
    os.kill(pid, signal.SIGSTOP)
    start = time.monotonic()
    """


@pytest.mark.parametrize("clients", [1, 4])
def test_a_process_ends_within_one_timeout_while_its_sidecar_stands_still(sidecar, clients):
    start = time.monotonic()
    code, out, err = run_script(STOPPED + 'print(time.monotonic())', sidecar.run_dir, sidecar.process.pid, 64, clients)
    took = time.monotonic() - (float(out) if out else start)
    os.kill(sidecar.process.pid, signal.SIGCONT)
    assert (code, err) == (0, "")
    assert took < 10  # client.timeout and some time to end; one for each of the 64 objects would be a minute
    assert wait_until(lambda: sidecar.ask("GET", "/v1/workloads")[1]["workloads"] == [])


@pytest.mark.parametrize("end", ["kept.clear()", "kept[1].close()", "kept[0].close()", "kept[1].close(drain=0)"])
def test_objects_that_end_together_wait_once_for_a_sidecar_that_stands_still(sidecar, end):
    code, out, err = run_script(STOPPED + f"""
    with contextlib.suppress(gantry.Error):
        {end}
    print(time.monotonic() - start)
    os.kill(pid, signal.SIGCONT)
    """, sidecar.run_dir, sidecar.process.pid, 64, 1)
    assert (code, err) == (0, "")
    assert float(out) < 4  # client.timeout, and a second to drain


def test_what_a_sidecar_did_not_hear_of_it_is_told_when_it_answers_again(sidecar):
    code, out, err = run_script(STOPPED + """
    client = kept[0]
    del kept[1:]
    os.kill(pid, signal.SIGCONT)
    memory = client.arena(4096)
    with client.register("b1", memory):
        print([b["name"] for b in client.request("GET", "/v1/buffers")["buffers"]], client.request("GET", "/v1/views"))
    """, sidecar.run_dir, sidecar.process.pid, 64, 1)
    assert (code, err) == (0, "")
    assert out == "['b1'] {'views': []}\n"


def test_a_killed_workload_is_cleaned_up(sidecar):
    code, _, _ = run_script("""
        import gantry, os, signal, sys
        client = gantry.Client(sys.argv[1], "w")
        buffer = client.register("b", client.arena(4096))
        os.kill(os.getpid(), signal.SIGKILL)
        """, sidecar.run_dir)
    assert code == -signal.SIGKILL
    assert wait_until(lambda: buffers_at(sidecar) == [], 3)


def test_a_sidecar_that_is_killed_in_the_middle_of_a_call(client, arena, sidecar):
    buffer = client.register("b", arena.view(0, 10))
    threading.Timer(0.3, sidecar.kill).start()
    start = time.monotonic()
    assert code_of(client.request, "POST", "/v1/completions:poll",
                   {"workload": "w", "cursor": 1 << 40, "wait_ms": 30000}, wait=30) == "sidecar_lost"
    assert time.monotonic() - start < 5
    assert code_of(client.check) == "sidecar_lost"
    assert code_of(client.arena, 4096) == "sidecar_lost"
    buffer.unregister()  # it went with the sidecar
    arena.close()
    client.close()


def test_a_sidecar_that_was_restarted_knows_nobody(sidecar):
    client = gantry.Client(sidecar.run_dir, "w")
    arena = client.arena(4096)
    sidecar.kill()
    sidecar.start()
    assert code_of(client.check) == "sidecar_lost"
    with pytest.raises(gantry.SidecarLost) as caught:
        client.register("b", arena)
    assert "open a new client" in caught.value.hint
    with gantry.Client(sidecar.run_dir, "w") as again:
        client.close()  # must not end the new one
        again.check()
        assert again.register("b", again.arena(4096)).registered


def test_a_forked_child_neither_uses_nor_ends_the_lease(sidecar):
    code, out, err = run_script("""
        import gantry, os, sys
        client = gantry.Client(sys.argv[1], "w")
        arena = client.arena(4096)
        buffer = client.register("b", arena)
        child = os.fork()
        if child == 0:
            for call in (client.check, client.close, buffer.unregister, arena.close, lambda: client.arena(1)):
                try:
                    call()
                    print("not refused")
                except gantry.Error as error:
                    assert error.code == "permission_denied", error
            own = gantry.Client(sys.argv[1], "child")
            own.register("b", own.arena(4096))
            sys.exit(0)  # finalizers run in the child as well
        assert os.waitpid(child, 0)[1] == 0
        client.check()
        assert buffer.registered
        assert client.request("GET", "/v1/buffers?workload=w")["buffers"][0]["name"] == "b"
        print("fine")
        """, sidecar.run_dir)
    assert (code, out, err) == (0, "fine\n", "")


def test_ctrl_c_ends_a_wait(sidecar):
    code, out, err = run_script("""
        import gantry, os, signal, sys, threading, time
        signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
        client = gantry.Client(sys.argv[1], "w")
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        start = time.monotonic()
        try:
            print("not interrupted", client.poll_events(1 << 40, wait=30), time.monotonic() - start)
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - start < 5)
        """, sidecar.run_dir)
    assert (code, out, err) == (0, "interrupted True\n", "")


def test_threads_share_one_client(pair):
    failures = []

    def work(index):
        try:
            for i in range(20):
                view = pair.target_arena.view(200_000 + index * BLOCK, BLOCK)
                with pair.client.register(f"t{index}.{i}", view, layout=gantry.Layout(BLOCK)) as buffer:
                    pair.client.read(buffer, "a/prefill/k.0", local_blocks=[0], remote_blocks=[index], wait=5).wait(5)
                    assert view == pair.source[index * BLOCK:(index + 1) * BLOCK]
                with pair.client.arena(4096):
                    pair.client.check()
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_close_ends_the_calls_of_other_threads(client):
    codes = []

    def wait_long():
        try:
            question = {"workload": "w", "cursor": 1 << 40, "wait_ms": 30000}
            client.request("POST", "/v1/completions:poll", question, wait=30)
        except gantry.Error as error:
            codes.append(error.code)

    thread = threading.Thread(target=wait_long)
    thread.start()
    time.sleep(0.3)
    client.close()
    thread.join(5)
    assert not thread.is_alive()
    assert codes in ([], ["cancelled"], ["not_found"], ["unauthenticated"])


@pytest.mark.parametrize("gpu, says", [("", ["shm, because not ipc:", "tcp, because not shm:"]),
                                       ("fake", ["GPU 0 to GPU 1 ", "GPU 0 to the host's memory"])])
def test_the_example_runs(folder, gpu, says):
    done = subprocess.run([ROOT / "tools" / "demo", "--tokens", "512", "--repeat", "1", "--bin-dir",
                           os.environ.get("GANTRY_BIN_DIR", ROOT / "build" / "release" / "bin")],
                          capture_output=True, text=True, timeout=110, env=os.environ | {"KEEP": "", "GPU": gpu})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("compared; moved blocks, other blocks and the gaps between views are right") == 3
    for words in says:
        assert words in done.stdout, done.stdout
    assert not gpu or done.stdout.split("path", 1)[1].split()[:2] == ["ipc", "ipc"], done.stdout


class Witness:
    """In a frame of a call that fails."""


def witness_of(call):
    """A weak reference to it."""
    witness = Witness()
    try:
        call()
    except gantry.Error:
        return weakref.ref(witness)


FAILING = {"a request": lambda transfer, client: witness_of(lambda: client.peer("nobody")),
           "a wait": lambda transfer, client: witness_of(lambda: transfer.wait(5))}


@pytest.mark.parametrize("call", FAILING)
def test_what_a_failed_call_had_goes_with_its_error(pair, call):
    """And not when Python looks for cycles: an error that a frame keeps would keep all callers' views and buffers."""
    clock = pair.client.register("clock", pair.client.arena(BLOCK))
    transfer = pair.client.read(pair.buffer, "a/prefill/k.0", local_blocks=[0], remote_blocks=[0], fence=(clock, 0, 1), deadline=0.1)
    gc.disable()
    try:
        assert FAILING[call](transfer, pair.client)() is None
    finally:
        gc.enable()
