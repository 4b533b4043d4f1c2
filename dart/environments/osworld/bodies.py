"""Bodies of HTTP answers from servers that are not trusted: as they come over the wire, up to a limit."""

import httpx2

IDENTITY = {"Accept-Encoding": "identity"}
"""Headers that ask for an answer that is not compressed: what is small on the wire may be huge unpacked."""


class BodyRefused(Exception):
    """A body is not read to its end."""


class BodyTooLarge(BodyRefused):
    """A body has more bytes than are read of it."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(f"its answer has more than {most_bytes} bytes")


async def body_of(response: httpx2.Response, most_bytes: int) -> bytes:
    """The body of an answer that is streamed. Raises BodyTooLarge, or BodyRefused when it is compressed."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise BodyRefused(f"its answer is compressed ({encoding!r}), which it was asked not to be")
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > most_bytes:
            raise BodyTooLarge(most_bytes)
    return bytes(body)
