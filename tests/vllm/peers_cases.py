"""What a worker tells its sidecar of prefillers' sidecars: nothing twice, nothing made up, and no more than so many."""

import unittest

from gantry import Error
from gantry_vllm.handshake import Handshake
from gantry_vllm.peers import PEERS_MAX, Peers
from gantry_vllm.places import Places

NODE = "this"


class Sidecar:
    """Peers as a sidecar has them; those in `reachable` (by address) are up."""

    def __init__(self, capacity=1024):
        self.peers, self.capacity, self.asked = {}, capacity, []
        self.reachable, self.sockets = set(), {}  # name -> its socket on this node

    def peer(self, name):
        if name not in self.peers:
            raise Error("not_found", f"no peer {name}")
        address = self.peers[name]
        up = address in self.reachable
        return {"name": name, "address": address, "state": "up" if up else "down", **({"node_id": NODE} if up else {})}

    def set_peer(self, name, address, wait=None, *, node_id=None):
        if name not in self.peers and len(self.peers) >= self.capacity:
            raise Error("resource_exhausted", "no more peers")
        self.asked.append((name, address, wait))
        self.peers[name] = self.sockets.get(name, address) if node_id == NODE else address
        return self.peer(name)

    def delete_peer(self, name):
        self.peer(name)
        del self.peers[name]

    def request(self, *_):
        return {"peers": [self.peer(name) for name in self.peers]}


def at(address, name="prefill", node_id=""):
    return Handshake(name, address, "w", node_id)


class PeersCases(unittest.TestCase):

    def setUp(self):
        self.sidecar, self.peers = Sidecar(), Peers(Places())
        self.sidecar.reachable |= {"10.0.0.1:1", "10.0.0.2:1"}

    def introduce(self, source, life=1, **options):
        return self.peers.introduce(self.sidecar, life, source, **options)

    def test_one_that_is_up_is_told_once_in_a_life(self):
        self.assertTrue(self.introduce(at("10.0.0.1:1")))
        self.assertFalse(self.introduce(at("10.0.0.1:1")))
        self.assertTrue(self.introduce(at("10.0.0.1:1"), life=2))

    def test_one_that_is_up_stays_where_it_is(self):
        self.introduce(at("10.0.0.1:1"))
        for made_up in (at("10.0.0.2:1"), at("10.6.6.6:1"), at("unix:/somewhere"), at("10.6.6.6:1", node_id="another")):
            with self.assertRaisesRegex(Error, "is up at 10.0.0.1:1") as raised:
                self.introduce(made_up)
            self.assertEqual(raised.exception.code, "conflict")
        self.assertEqual(self.sidecar.peers, {"prefill": "10.0.0.1:1"})
        self.assertFalse(self.introduce(at("10.0.0.1:1")), "those who know it need not tell it again")

    def test_one_that_somebody_else_told_stays_too(self):
        self.sidecar.set_peer("prefill", "10.0.0.1:1")
        with self.assertRaises(Error):
            self.introduce(at("10.0.0.2:1"))

    def test_where_no_prefiller_may_be_nothing_is_told(self):
        """The sidecar would show its token there."""
        with self.assertRaisesRegex(Error, "the prefiller prefill is said to be at 8.8.8.8:9461: 8.8.8.8 is a public address") as raised:
            self.introduce(at("8.8.8.8:9461"))
        self.assertIn("peer_addresses", str(raised.exception))
        self.assertEqual((self.sidecar.asked, self.sidecar.peers), ([], {}))

    def test_one_that_is_down_may_have_moved(self):
        self.introduce(at("10.0.0.1:1"))
        self.sidecar.reachable.remove("10.0.0.1:1")
        self.assertTrue(self.introduce(at("10.0.0.2:1")))
        self.assertEqual(self.sidecar.peers, {"prefill": "10.0.0.2:1"})

    def test_at_its_nodes_socket_it_is_where_it_was_said_to_be(self):
        self.sidecar.sockets["prefill"] = "unix:/node/prefill.sock"
        self.sidecar.reachable.add("unix:/node/prefill.sock")
        self.assertTrue(self.introduce(at("10.0.0.1:1", node_id=NODE)))
        self.assertTrue(self.introduce(at("10.0.0.1:1", node_id=NODE), life=2))
        with self.assertRaises(Error):
            self.introduce(at("10.0.0.1:1", node_id="another"))

    def test_the_nodes_socket_is_looked_for_until_it_was_up(self):
        """Its sidecar was away when it was told first, so that there was no socket."""
        its = at("10.0.0.9:1", node_id=NODE)
        self.assertTrue(self.introduce(its))
        self.sidecar.sockets["prefill"] = "unix:/node/prefill.sock"
        self.sidecar.reachable.add("unix:/node/prefill.sock")
        self.assertTrue(self.introduce(its))
        self.assertEqual(self.sidecar.peers, {"prefill": "unix:/node/prefill.sock"})
        self.assertFalse(self.introduce(its))

    def test_one_that_never_was_up_is_waited_for_once(self):
        for _ in range(3):
            self.introduce(at("10.0.0.9:1"))
        self.assertEqual([wait for _, _, wait in self.sidecar.asked], [None, 0, 0])

    def test_a_message_waits_for_nothing_and_the_next_read_waits_all_the_same(self):
        self.introduce(at("10.0.0.9:1"), wait=0)
        self.introduce(at("10.0.0.9:1"))
        self.assertEqual([wait for _, _, wait in self.sidecar.asked], [0, None])

    def test_those_needed_last_are_kept(self):
        for number in range(PEERS_MAX):
            self.introduce(at("10.0.0.1:1", str(number)))
        self.introduce(at("10.0.0.1:1", "0"))
        self.introduce(at("10.0.0.1:1", "new"))
        self.assertEqual(len(self.sidecar.peers), PEERS_MAX)
        self.assertIn("0", self.sidecar.peers)
        self.assertNotIn("1", self.sidecar.peers)
        self.assertTrue(self.introduce(at("10.0.0.1:1", "1")), "it is told again")

    def test_one_that_is_read_is_not_forgotten(self):
        with self.peers.reading(["first"]):
            self.introduce(at("10.0.0.1:1", "first"))
            for number in range(2 * PEERS_MAX):
                self.introduce(at("10.0.0.1:1", str(number)))
            self.assertIn("first", self.sidecar.peers)
        self.introduce(at("10.0.0.1:1", "last"))
        self.assertNotIn("first", self.sidecar.peers)

    def test_where_the_sidecar_takes_no_more_the_dead_make_way(self):
        self.sidecar.capacity = 4
        for name, address in (("gone", "10.0.0.9:1"), ("read", "10.0.0.9:1"), ("here", "10.0.0.1:1"), ("too", "10.0.0.2:1")):
            self.sidecar.set_peer(name, address)
        with self.peers.reading(["read"]):
            self.introduce(at("10.0.0.1:1", "new"))
            self.assertEqual(set(self.sidecar.peers), {"read", "here", "too", "new"})
            with self.assertRaisesRegex(Error, "no more peers"):
                self.introduce(at("10.0.0.1:1", "newer"))


if __name__ == "__main__":
    unittest.main()
