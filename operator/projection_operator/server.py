"""/healthz, /readyz and /metrics on one port."""

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

Check = Callable[[], str]
"""Says what is wrong; an empty text when nothing is."""


async def serve(host: str, port: int, *, healthy: Check, ready: Check, registry: CollectorRegistry) -> web.AppRunner:
    """Serve until the runner is cleaned up; OSError when the port is taken."""

    def probe(check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(_: web.Request) -> web.Response:
            wrong = check()
            return web.Response(text=f"{wrong or 'ok'}\n", status=503 if wrong else 200)

        return handle

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    application = web.Application()
    application.router.add_get("/healthz", probe(healthy))
    application.router.add_get("/readyz", probe(ready))
    application.router.add_get("/metrics", metrics)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner
