"""Each thing that cannot be done is refused, and the plugin's line says why and what to do."""

import pytest
from agents import NEWEST, REFUSED, Failed, install, introduce
from test_transfers import pair_of

SIZE = 1 << 20


def refused(agent, says, command, *arguments, error="NIXL_ERR"):
    with pytest.raises(Failed, match=error):
        getattr(agent, command)(*arguments)
    assert says in agent.log, agent.log


def test_an_older_nixl_is_refused_when_it_loads_the_plugin(world):
    process = world.process("one", REFUSED)
    refused(process, "is older than 1.0 or newer than the plugin knows (the plugin works with NIXL 1.0.1 to 1.5.1)", "open", "one", {},
            error="NIXL_ERR_NOT_FOUND")


def newer_nixl(world):
    """The newest wheel, which says that it is of a later version."""
    place = install(world.environment, NEWEST, world.folder)
    for info in place.glob("nixl_cu*.dist-info"):
        info.rename(info.with_name(info.name.replace("1.5.1", "1.6.0")))
    return place


def test_a_newer_nixl_is_refused(world):
    process = world.process_at(newer_nixl(world), "one")
    refused(process, "NIXL 1.6.0 is newer than the plugin knows", "open", "one", {}, error="NIXL_ERR_NOT_FOUND")


def test_a_newer_nixl_is_taken_at_the_users_risk(world):
    process = world.process_at(newer_nixl(world), "one", GANTRY_NIXL_ANY_VERSION="1")
    process.open("one", {"run_dir": str(world.sidecar("one").run_dir)})


def test_without_a_sidecar_there_is_no_backend(world):
    process = world.process("one")
    refused(process, "the agent has no backend GANTRY", "open", "one", {"run_dir": str(world.folder / "nothing")})


def test_a_parameter_that_is_none_is_refused(world):
    process = world.process("one")
    refused(process, "there is no parameter 'rundir'", "open", "one", {"rundir": "/run/gantry"})


def test_memory_that_no_sidecar_can_map_is_refused(world):
    agent = world.agent("one", world.sidecar("one"))
    agent.allocate("kv", SIZE, "file")
    refused(agent, "--unsealed-memory", "register", "kv", 0, SIZE, error="NIXL_ERR_NOT_SUPPORTED|NIXL_ERR_BACKEND|Error")


def test_memory_past_its_end_is_refused(world):
    agent = world.agent("one", world.sidecar("one"))
    agent.allocate("kv", SIZE)
    refused(agent, "goes on past the end", "register", "kv", 0, 64 * SIZE, error="Error")


def test_two_agents_of_one_name_are_refused(world):
    sidecar = world.sidecar("one")
    world.agent("one", sidecar)
    second = world.process("second")
    refused(second, "the agent has no backend GANTRY", "open", "one", {"run_dir": str(sidecar.run_dir)})


def test_metadata_that_is_not_gantrys_is_refused(world):
    agents, _ = pair_of(world)
    blob = agents[0].metadata()
    agents[1].unload("one")
    refused(agents[1], "the metadata's connection info is not Gantry's", "load", blob.replace(b'"gantry":1', b'"gantry":9'))
    with pytest.raises(Failed, match="NIXL_ERR_INVALID_PARAM"):  # of another agent than it says
        agents[1].load(blob.replace(b"one", b"six", 1))
    introduce(*agents)
