"""Bodies of HTTP responses from untrusted servers: read as they arrive, up to a limit, never decompressed."""

import httpx2

IDENTITY = {"Accept-Encoding": "identity"}
"""Headers that ask for an uncompressed response, because a small compressed body may unpack to a huge one."""


class BodyRefused(Exception):
    """The body of a response is not accepted, and was not read to its end."""


class BodyTooLarge(BodyRefused):
    """The body of a response is larger than its limit."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(f"its response has more than {most_bytes} bytes")


async def body_of(response: httpx2.Response, most_bytes: int) -> bytes:
    """Return the body of a streamed response. Raises BodyTooLarge, or BodyRefused when it is compressed."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise BodyRefused(
            f"its response is compressed ({encoding!r}) although the request asks for 'identity'"
        )
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > most_bytes:
            raise BodyTooLarge(most_bytes)
    return bytes(body)
