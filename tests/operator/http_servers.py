"""A real HTTP server that answers as a test says, since real API servers cannot be made to misbehave."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Answer = Callable[[web.Request], web.Response]


@asynccontextmanager
async def server(*answers: Answer) -> AsyncIterator[tuple[str, list[web.Request]]]:
    """A server that gives these answers in turn, the last one for ever; gives its address and what it received."""
    received: list[web.Request] = []

    async def handle(request: web.Request) -> web.Response:
        await request.read()
        received.append(request)
        return answers[min(len(received), len(answers)) - 1](request)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield "http://{}:{}".format(*runner.addresses[0][:2]), received
    finally:
        await runner.cleanup()


def refusal(status: int, reason: str = "Some") -> Answer:
    """The answer of an API server that refuses."""
    return lambda _: web.json_response({"kind": "Status", "reason": reason, "message": "no"}, status=status)
