"""Addresses at which prefillers may be."""

import unittest

from gantry_vllm.places import Places, check_places


class PlacesCases(unittest.TestCase):

    def allowed(self, places, *addresses):
        return [address for address in addresses if places.why_not(address) is None]

    def test_public_addresses_and_names_are_refused_unless_they_are_listed(self):
        inside = ("10.1.2.3:9461", "192.168.0.1:1", "172.16.0.1:1", "127.0.0.1:1", "[::1]:1", "[fd00::1]:9461", "100.64.0.1:1", "unix:/p.sock")
        outside = ("8.8.8.8:9461", "[2600::1]:9461", "[::ffff:8.8.8.8]:1", "169.254.169.254:80", "[fe80::1]:1",
                   "0.0.0.0:1", "[::]:1", "255.255.255.255:1", "[2002:808:808::1]:1", "224.0.0.1:1", "prefill-0.svc:9461", "attacker.example:1", "", "hello", "10.1.2.3", "2130706433:1")
        self.assertEqual(self.allowed(Places(), *inside, *outside), list(inside))

    def test_networks_and_names_that_are_listed_are_the_only_ones(self):
        places = Places(["10.0.0.0/8", "2600::/16", "192.168.7.7", ".svc.cluster.local", "prefill-0"])
        inside = ("10.1.2.3:1", "[2600::1]:1", "192.168.7.7:1", "a.svc.cluster.local:1", "A.SVC.cluster.local:1", "prefill-0:1", "unix:/p.sock")
        outside = ("a.svc.cluster.local.example:1", "192.168.7.8:1", "127.0.0.1:1", "svc.cluster.local.example:1", "evilsvc.cluster.local.example:1", "prefill-01:1", "x:1")
        self.assertEqual(self.allowed(places, *inside, *outside), list(inside))

    def test_an_empty_list_allows_sockets_of_the_node_alone(self):
        self.assertEqual(self.allowed(Places([]), "10.0.0.1:1", "unix:/p.sock"), ["unix:/p.sock"])

    def test_what_is_no_list_of_networks_and_names_is_refused(self):
        for wrong in ("10.0.0.0/8", [5], ["10.0.0.1/8"], ["10.0.0.0/33"], [""], ["a/b"], ["10.0.0"], ["300.1.1.1"], ["a b"], {"10.0.0.0/8": 1}):
            with self.subTest(str(wrong)), self.assertRaisesRegex(ValueError, "^peer_addresses of kv_connector_extra_config is no list"):
                check_places(wrong)


if __name__ == "__main__":
    unittest.main()
