"""A worker tells its sidecar of prefillers' sidecars: nothing twice, nothing that breaks a read, and no more than so many."""

import unittest

from gantry import Error
from gantry_vllm.handshake import Handshake
from gantry_vllm.peers import KEPT, Peers

NODE = "this"


class Sidecar:
    """Peers as a sidecar has them; those in `reachable` (by address) are up."""

    def __init__(self, capacity=1024):
        self.peers, self.capacity, self.asked = {}, capacity, []  # name -> [address, whether it was up]
        self.reachable, self.sockets = set(), {}  # name -> its socket on this node

    def peer(self, name):
        if name not in self.peers:
            raise Error("not_found", f"no peer {name}")
        address, was_up = self.peers[name]
        up = address in self.reachable
        self.peers[name][1] |= up
        return {"name": name, "address": address, "state": "up" if up else "down" if was_up else "connecting"}

    def set_peer(self, name, address, wait=None, *, node_id=None):
        if name not in self.peers and len(self.peers) >= self.capacity:
            raise Error("resource_exhausted", "no more peers")
        self.asked.append((name, address, wait))
        address = self.sockets.get(name, address) if node_id == NODE else address
        if self.peers.get(name, [None])[0] != address:
            self.peers[name] = [address, False]
        return self.peer(name)

    def delete_peer(self, name):
        self.peer(name)
        del self.peers[name]

    def request(self, *_):
        return {"peers": [self.peer(name) for name in self.peers]}

    def addresses(self):
        return {name: address for name, (address, _) in self.peers.items()}


def at(address, name="prefill", node_id=""):
    return Handshake(name, address, "w", node_id)


HERE, THERE, NOWHERE = at("10.0.0.1:1"), at("10.0.0.2:1"), at("10.0.0.9:1")


class PeersCases(unittest.TestCase):

    def setUp(self):
        self.sidecar, self.peers = Sidecar(), Peers()
        self.sidecar.reachable |= {HERE.address, THERE.address}

    def introduce(self, source, life=1):
        return self.peers.introduce(self.sidecar, life, source)

    def remind(self, source):
        self.peers.remind(self.sidecar, 1, source)

    def test_one_that_is_up_is_told_once_in_a_life(self):
        self.assertTrue(self.introduce(HERE))
        self.assertFalse(self.introduce(HERE))
        self.assertTrue(self.introduce(HERE, life=2))

    def test_one_that_is_read_stays_where_it_is(self):
        with self.peers.reading(1, (HERE,)):
            self.introduce(HERE)
            with self.peers.reading(1, (THERE,)):
                for tell in (self.introduce, self.remind):
                    with self.assertRaisesRegex(Error, "it is read at 10.0.0.1:1 just now") as raised:
                        tell(THERE)
                    self.assertEqual(raised.exception.code, "conflict")
            self.assertFalse(self.introduce(HERE), "the read goes on")
        self.assertEqual(self.sidecar.addresses(), {"prefill": HERE.address})

    def test_a_read_of_a_lost_life_keeps_nobody_waiting(self):
        with self.peers.reading(1, (HERE,)):
            self.introduce(HERE)
            self.assertTrue(self.introduce(HERE, life=2))
            self.assertTrue(self.introduce(THERE, life=2))

    def test_one_that_is_not_read_goes_where_it_was_said_to_be_last(self):
        """The right address puts right one that was made up."""
        for source in (THERE, NOWHERE, HERE):
            self.assertTrue(self.introduce(source))
            self.assertEqual(self.sidecar.addresses(), {"prefill": source.address})
        self.assertFalse(self.introduce(HERE))

    def test_after_an_error_one_is_told_again(self):
        """Somebody else may have deleted it."""
        self.introduce(HERE)
        self.sidecar.delete_peer("prefill")
        self.assertFalse(self.introduce(HERE))
        with self.assertRaises(ValueError), self.peers.reading(1, (HERE,)):
            raise ValueError
        self.assertTrue(self.introduce(HERE))
        self.assertEqual(self.sidecar.addresses(), {"prefill": HERE.address})

    def test_the_nodes_socket_is_looked_for_until_it_was_up(self):
        """Its sidecar was away when it was told first, so that there was no socket."""
        its = at(NOWHERE.address, node_id=NODE)
        self.assertTrue(self.introduce(its))
        self.sidecar.sockets["prefill"] = "unix:/node/prefill.sock"
        self.sidecar.reachable.add("unix:/node/prefill.sock")
        self.assertTrue(self.introduce(its))
        self.assertEqual(self.sidecar.addresses(), {"prefill": "unix:/node/prefill.sock"})
        self.assertFalse(self.introduce(its))

    def test_one_that_never_was_up_is_waited_for_once(self):
        for _ in range(3):
            self.introduce(NOWHERE)
        self.assertEqual([wait for _, _, wait in self.sidecar.asked], [None, 0, 0])

    def test_a_message_waits_for_nothing_and_the_next_read_waits_all_the_same(self):
        self.remind(NOWHERE)
        self.introduce(NOWHERE)
        self.assertEqual([wait for _, _, wait in self.sidecar.asked], [0, None])

    def test_a_message_finds_a_peer_that_was_deleted(self):
        self.introduce(HERE)
        self.sidecar.delete_peer("prefill")
        self.remind(HERE)
        self.assertEqual(self.sidecar.addresses(), {"prefill": HERE.address})

    def test_a_message_moves_no_peer_that_is_read(self):
        """Its socket is away for a moment while its sidecar starts again."""
        its = at(THERE.address, node_id=NODE)
        self.sidecar.sockets["prefill"] = HERE.address
        with self.peers.reading(1, (its,)):
            self.introduce(its)
            del self.sidecar.sockets["prefill"]
            self.remind(its)
            self.assertEqual(self.sidecar.addresses(), {"prefill": HERE.address})
        self.remind(its)
        self.assertEqual(self.sidecar.addresses(), {"prefill": THERE.address})

    def test_one_that_a_message_found_away_is_told_again(self):
        its = at(NOWHERE.address, node_id=NODE)
        self.sidecar.sockets["prefill"] = HERE.address
        self.introduce(its)
        del self.sidecar.sockets["prefill"]
        self.remind(its)
        self.sidecar.sockets["prefill"] = HERE.address
        self.assertTrue(self.introduce(its))
        self.assertEqual(self.sidecar.addresses(), {"prefill": HERE.address})
        self.assertFalse(self.introduce(its))

    def test_names_that_never_were_up_are_forgotten_whoever_told_them(self):
        for number in range(3 * KEPT):
            (self.introduce if number % 2 else self.remind)(at(NOWHERE.address, str(number)))
        self.assertLessEqual(len(self.sidecar.peers), KEPT + 1)
        self.assertEqual(set(self.sidecar.peers), set(self.peers._told))

    def test_those_that_are_up_are_kept(self):
        for number in range(3 * KEPT):
            self.introduce(at(HERE.address, str(number)))
        for number in range(2 * KEPT):
            self.introduce(at(NOWHERE.address, f"gone {number}"))
        self.assertLessEqual({str(number) for number in range(3 * KEPT)}, set(self.sidecar.peers))
        self.assertFalse(self.introduce(at(HERE.address, "0")))

    def test_one_that_is_read_is_not_forgotten(self):
        its = at(NOWHERE.address, "read")
        with self.peers.reading(1, (its,)):
            self.introduce(its)
            for number in range(2 * KEPT):
                self.introduce(at(NOWHERE.address, str(number)))
            self.assertIn("read", self.sidecar.peers)
        self.introduce(at(NOWHERE.address, "last"))
        self.introduce(at(NOWHERE.address, "very last"))
        self.assertNotIn("read", self.sidecar.peers)

    def test_where_the_sidecar_takes_no_more_those_that_are_not_up_make_way(self):
        self.sidecar.capacity = 4
        for name, source in (("connecting", NOWHERE), ("read", NOWHERE), ("here", HERE), ("there", THERE)):
            self.sidecar.set_peer(name, source.address)
        with self.peers.reading(1, (at(NOWHERE.address, "read"),)):
            self.introduce(at(HERE.address, "new"))
            self.assertEqual(set(self.sidecar.peers), {"read", "here", "there", "new"})
            with self.assertRaisesRegex(Error, "no more peers"):
                self.introduce(at(HERE.address, "newer"))


if __name__ == "__main__":
    unittest.main()
