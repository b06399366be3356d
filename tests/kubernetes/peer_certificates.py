"""A certificate as a Secret holds it, and who shows which at the peer API: handshakes from the node's network."""

import base64
import re
import socket
import ssl

FILES = ("tls.crt", "tls.key", "ca.crt")
PEER_PORT = 9461


class Certificate:
    """Of a Secret as it is now, in files of their own."""

    def __init__(self, secret, folder):
        self.folder = folder / f"{secret['metadata']['name']}-{secret['metadata']['resourceVersion']}"
        self.folder.mkdir(exist_ok=True)
        for file in FILES:
            (self.folder / file).write_bytes(base64.b64decode(secret["data"][file]))
        leaf = re.match(r"-----BEGIN.*?END CERTIFICATE-----", (self.folder / "tls.crt").read_text(), re.DOTALL)
        self.der = ssl.PEM_cert_to_DER_cert(leaf.group())
        self.authorities = (self.folder / "ca.crt").read_text()


def shown(address, by, own=None, port=PEER_PORT):
    """(names, DER) of what a sidecar shows, which an authority of the certificate `by` has to have signed; `own`: shown to it in turn."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # names are of pods, not of hosts
    context.load_verify_locations(by.folder / "ca.crt")
    context.set_alpn_protocols(["h2"])
    if own:
        context.load_cert_chain(own.folder / "tls.crt", own.folder / "tls.key")
    with socket.create_connection((address, port), timeout=10) as connection, context.wrap_socket(connection) as tls:
        # What the sidecar thinks of `own` comes after the handshake: the first frame of HTTP/2, or an alert.
        if not tls.recv(1):
            raise ssl.SSLError("the sidecar closed the connection")
        return [name for _, name in tls.getpeercert()["subjectAltName"]], tls.getpeercert(binary_form=True)


def refusal(address, by, own=None):
    """Why a sidecar takes no connection from who shows `own`; None where it takes one."""
    try:
        shown(address, by, own)
    except (ssl.SSLError, ConnectionError) as error:
        return str(error)
    return None
