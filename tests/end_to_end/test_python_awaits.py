"""`await transfer`: no thread for each, and loops that end, are several or are closed."""

import asyncio
import os
import signal
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from python_client_parts import BLOCK, gantry, pair, run_script, wait_until  # noqa: F401

REMOTE = "a/prefill/k.0"


class NoExecutor(ThreadPoolExecutor):
    def submit(self, *_arguments, **_named):
        raise AssertionError("the loop's executor is the application's")


@pytest.fixture
def scene(pair):
    pair.counters = pair.client.arena(4096)
    pair.counters_buffer = pair.client.register("counters", pair.counters)
    return pair


def fenced(scene, index=0, deadline=20.0):
    """A transfer that waits for raise_fence()."""
    return scene.client.read(scene.buffer, REMOTE, local_blocks=[index % 16], remote_blocks=[index % 16],
                             fence=(scene.counters_buffer, 0, 1), deadline=deadline)


def raise_fence(scene):
    scene.counters[:8] = struct.pack("Q", 1)


def ours():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("gantry-")]


def test_forty_awaits_starve_nobody(scene):
    async def main():
        asyncio.get_running_loop().set_default_executor(NoExecutor())
        waiting = [asyncio.ensure_future(await_it(fenced(scene, i))) for i in range(40)]
        await asyncio.sleep(0.3)
        assert not any(task.done() for task in waiting) and len(ours()) <= 2
        took = []
        for _ in range(10):
            start = time.monotonic()
            status = await scene.client.read(scene.buffer, REMOTE, local_blocks=[1], remote_blocks=[2])
            took.append(time.monotonic() - start)
            assert status.state == "succeeded"
        assert sorted(took)[5] < 0.1, took
        raise_fence(scene)
        done = await asyncio.wait_for(asyncio.gather(*waiting), 10)
        assert [status.state for status in done] == ["succeeded"] * 40

    async def await_it(transfer):
        return await transfer

    asyncio.run(main())
    assert wait_until(lambda: not ours(), 5)


def test_an_await_raises_what_a_wait_raises(scene):
    async def main():
        transfer = fenced(scene, deadline=0.2)
        with pytest.raises(gantry.Error) as caught:
            await transfer
        assert caught.value.code == "deadline_exceeded" and transfer.poll().state == "expired"
        cancelled = fenced(scene, 1)
        asyncio.get_running_loop().call_later(0.1, cancelled.cancel)
        with pytest.raises(gantry.Error) as caught:
            await cancelled
        assert caught.value.code == "cancelled"
        over = scene.client.read(scene.buffer, REMOTE, local_blocks=[0], remote_blocks=[1], wait=5)
        assert (await over).state == (await over).state == "succeeded"

    asyncio.run(main())


def test_a_cancelled_task_leaves_the_transfer_going(scene):
    async def main():
        transfer = fenced(scene)
        both = [asyncio.ensure_future(awaited(transfer)) for _ in range(2)]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(awaited(transfer), 0.2)
        both[0].cancel()
        await asyncio.sleep(0.1)
        raise_fence(scene)
        assert (await both[1]).state == "succeeded" and both[0].cancelled()
        return transfer

    async def awaited(transfer):
        return await transfer

    assert asyncio.run(main()).wait(5).state == "succeeded"
    assert wait_until(lambda: not ours(), 5)


def test_several_loops_in_several_threads(scene):
    states, failures = [], []

    def work(index):
        try:
            async def main():
                return [(await fenced(scene, index * 4 + i)).state for i in range(4)]
            states.extend(asyncio.run(main()))
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    raise_fence(scene)
    for thread in threads:
        thread.join(20)
    assert failures == [] and states == ["succeeded"] * 16


def test_loops_that_end_with_awaits_pending(scene):
    loop = asyncio.new_event_loop()
    transfer = fenced(scene)

    async def awaited():
        return await transfer

    task = loop.create_task(awaited())
    loop.run_until_complete(asyncio.sleep(0.1))
    loop.close()  # with the task pending, and nobody cancels it
    raise_fence(scene)
    assert transfer.wait(5).state == "succeeded"
    assert asyncio.run(awaited()).state == "succeeded"
    assert wait_until(lambda: not ours(), 5)
    task._log_destroy_pending = False


def test_a_closed_client_ends_awaits(scene):
    async def main():
        transfer = fenced(scene)
        asyncio.get_running_loop().call_later(0.2, scene.client.close)
        with pytest.raises(gantry.Error) as caught:
            await asyncio.wait_for(awaited(transfer), 10)
        return caught.value.code

    async def awaited(transfer):
        return await transfer

    assert asyncio.run(main()) in ("cancelled", "not_found", "unauthenticated")


def test_a_sidecar_that_stands_still_does_not_stop_the_loop(scene):
    client = gantry.Client(scene.b.run_dir, "other", timeout=1.0)
    memory = client.arena(8192)
    buffer, counters = client.register("k", memory.view(0, 4096)), client.register("c", memory.view(4096, 4096))
    beats = []

    async def beat():
        while True:
            beats.append(time.monotonic())
            await asyncio.sleep(0.02)

    async def main():
        beating = asyncio.ensure_future(beat())
        transfer = client.read(buffer, REMOTE, ranges=[(0, 0, 0, 0, 8)], fence=(counters, 0, 1), deadline=30)
        asyncio.get_running_loop().call_later(0.3, os.kill, scene.b.process.pid, signal.SIGSTOP)
        with pytest.raises(gantry.Error) as caught:
            await transfer
        beating.cancel()
        return caught.value.code

    try:
        assert asyncio.run(main()) == "deadline_exceeded"
    finally:
        os.kill(scene.b.process.pid, signal.SIGCONT)
    assert max(after - before for before, after in zip(beats, beats[1:])) < 0.5


def test_awaits_leave_notifications_unread(scene):
    """Whoever reads them is another: they may not make room for later ones."""
    said = []
    ask = scene.client.request

    def recorded(method, target, body=None, wait=0.0):
        said.append((target, body))
        return ask(method, target, body, wait)

    scene.client.request = recorded

    async def main():
        asyncio.get_running_loop().call_later(0.3, raise_fence, scene)
        return await fenced(scene)

    assert asyncio.run(main()).state == "succeeded"
    polls = [body for target, body in said if target == "/v1/completions:poll"]
    assert polls and all(body["acknowledge"] == 0 for body in polls)


def test_a_process_may_end_while_it_awaits(scene):
    code, out, err = run_script("""
        import asyncio, gantry, sys
        client = gantry.Client(sys.argv[1], "third")
        memory = client.arena(8192)
        buffer, counters = client.register("k", memory.view(0, 4096)), client.register("c", memory.view(4096, 4096))

        async def main():
            transfer = client.read(buffer, sys.argv[2], ranges=[(0, 0, 0, 0, 8)], fence=(counters, 0, 1), deadline=30)

            async def awaited():
                await transfer

            task = asyncio.ensure_future(awaited())
            await asyncio.sleep(0.2)

        asyncio.run(main())
        """, scene.b.run_dir, REMOTE)
    assert (code, out, err) == (0, "", "")
