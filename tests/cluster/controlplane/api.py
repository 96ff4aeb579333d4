"""Ask the API server a yes-or-no question, without a client library."""

import http.client
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from tests.cluster.controlplane.certificates import KeyPair

REQUEST_SECONDS = 5.0


class Prober:
    """Asks one API server with a client certificate."""

    def __init__(self, url: str, ca_file: Path, pair: KeyPair) -> None:
        """Read the credentials once; asking connects anew each time."""
        self._address = urlsplit(url).netloc
        self._context = ssl.create_default_context(cafile=str(ca_file))
        self._context.load_cert_chain(pair.certificate, pair.key)

    def answers(self, path: str) -> bool:
        """Tell whether GET `path` is answered with 200."""
        connection = http.client.HTTPSConnection(self._address, context=self._context, timeout=REQUEST_SECONDS)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
