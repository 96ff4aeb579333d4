"""A TCP relay in front of the API server that can go silent or refuse, to show what the operator makes of it."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

CHUNK_BYTES = 65536


class Relay:
    """Relays bytes, TLS included, between its own port and the API server's."""

    def __init__(self, url: str) -> None:
        """Listen on a free port."""
        address = urlsplit(url)
        self._upstream = (address.hostname or "", address.port or 443)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._silent: set[socket.socket] = set()
        self._refusing = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """Address to use instead of the API server's."""
        return f"https://127.0.0.1:{self._listener.getsockname()[1]}"

    def silence(self) -> None:
        """Hold back everything the server says on the connections of this moment.

        Whoever only listens hears nothing and is told nothing; whoever asks again is disconnected. New connections
        work. This is what a watch looks like behind a load balancer that forgot it.
        """
        with self._lock:
            self._silent |= self._open

    def refuse(self, *, refusing: bool) -> None:
        """End all connections and accept none, or accept again."""
        with self._lock:
            self._refusing = refusing
            closing = list(self._open) if refusing else []
        for client in closing:
            _shut(client)

    def close(self) -> None:
        """End everything."""
        self.refuse(refusing=True)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                client.close()
                continue
            server = socket.create_connection(self._upstream)
            with self._lock:
                self._open.add(client)
            threading.Thread(target=self._pump, args=(client, server, client, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, client, False), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, client: socket.socket, asking: bool) -> None:  # noqa: FBT001 - a thread passes it by place
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                with self._lock:
                    silent = client in self._silent
                if not silent:
                    sink.sendall(data)
                elif asking:
                    break
        for end in (source, sink):
            _shut(end)
        with self._lock:
            self._open.discard(client)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@contextlib.contextmanager
def relayed(kubeconfig: Path, url: str) -> Iterator[tuple[Relay, Path]]:
    """A relay to the API server at `url`, and a copy of the kubeconfig that goes through it."""
    relay = Relay(url)
    content: dict[str, Any] = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    for entry in content["clusters"]:
        entry["cluster"]["server"] = relay.url
    path = kubeconfig.with_suffix(f".{relay.url.rpartition(':')[2]}.kubeconfig")
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    try:
        yield relay, path
    finally:
        relay.close()
