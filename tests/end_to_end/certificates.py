"""Certificate authorities and certificates for tests, made with the openssl program."""

import subprocess


def _openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=30)


class Authority:
    """Signs certificates; everything lies in `folder`, which the test owns."""

    def __init__(self, folder, name):
        self.folder = folder
        self.name = name
        self.certificate = folder / f"{name}-ca.pem"
        self.key = folder / f"{name}-ca.key"
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                 "-subj", f"/CN={name}", "-keyout", self.key, "-out", self.certificate)

    def issue(self, name, subject_names, days=1):
        """Returns the flags that give a sidecar this certificate. `subject_names` as openssl writes them."""
        key, request = self.folder / f"{name}.key", self.folder / f"{name}.csr"
        certificate, extensions = self.folder / f"{name}.pem", self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={subject_names}\nextendedKeyUsage=serverAuth,clientAuth\n")
        _openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                 "-keyout", key, "-out", request)
        _openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial",
                 "-days", days, "-extfile", extensions, "-out", certificate)
        return ["--peer-tls-cert", str(certificate), "--peer-tls-key", str(key),
                "--peer-tls-ca", str(self.certificate)]
