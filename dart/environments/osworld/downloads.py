"""Downloads of files that tasks need: from public addresses only, up to a limit.

Task files are not trusted. A URL must not reach a service of this computer or of its private networks, even
through a redirection or through a name that resolves to another address each time. Every address is therefore
checked right before a connection, and the connection goes to exactly this address.
"""

import asyncio
import ipaddress
import socket
import urllib.request
from collections.abc import Awaitable, Callable, Mapping, Sequence

import httpx2

from dart.environments.osworld.bodies import IDENTITY, BodyRefused, body_of

MOST_REDIRECTS = 10
CONNECT_DEADLINE_S = 10.0
"""Deadline of the connection to each address of a host."""

NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""IPv6 addresses that contain an IPv4 address in their last four bytes."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


REQUEST_TIMEOUT, TOO_MANY_REQUESTS, SERVER_ERROR = 408, 429, 500

UNKNOWN_NAME = (socket.EAI_NONAME, socket.EAI_NODATA)
"""Errors of a resolver that did answer: the name has no address."""


class DownloadFailed(Exception):
    """A file cannot be downloaded; the message says why.

    ``is_transient`` says whether the network or the server failed, so that the same download may succeed
    later."""

    def __init__(self, why: str, *, is_transient: bool = False) -> None:
        super().__init__(why)
        self.is_transient = is_transient


async def download(
    url: str, *, most_bytes: int, deadline_s: float, transport: httpx2.AsyncBaseTransport | None = None
) -> bytes:
    """Return the bytes at a URL, following redirections. Raises DownloadFailed."""
    timeout = httpx2.Timeout(None, connect=CONNECT_DEADLINE_S)
    try:
        async with (
            asyncio.timeout(deadline_s),
            httpx2.AsyncClient(
                transport=transport or PublicTransport(), timeout=timeout, headers=IDENTITY
            ) as client,
        ):
            return await _followed(client, url, most_bytes)
    except TimeoutError as error:
        why = f"the download did not end within {deadline_s:.1f} s"
        raise DownloadFailed(why, is_transient=True) from error
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError, BodyRefused) as error:
        why = f"{type(error).__name__}: {error}"
        raise DownloadFailed(why, is_transient=_is_transient(error)) from error


def _is_transient(error: Exception) -> bool:
    """Whether an error of a download is one of the network or of a busy or broken server."""
    if isinstance(error, httpx2.HTTPStatusError):
        status = error.response.status_code
        return status in (REQUEST_TIMEOUT, TOO_MANY_REQUESTS) or status >= SERVER_ERROR
    return isinstance(error, httpx2.TransportError) and not isinstance(error, httpx2.UnsupportedProtocol)


async def _followed(client: httpx2.AsyncClient, url: str, most_bytes: int) -> bytes:
    """Return the body at a URL, following redirections.

    The HTTP client could follow them, but would read the body of each redirection without a limit."""
    request: httpx2.Request | None = client.build_request("GET", url)
    for _ in range(MOST_REDIRECTS):
        assert request is not None
        response = await client.send(request, stream=True, follow_redirects=False)
        try:
            if not response.has_redirect_location:
                response.raise_for_status()
                return await body_of(response, most_bytes)
            request = response.next_request
        finally:
            await response.aclose()
    raise DownloadFailed(f"the server redirects more than {MOST_REDIRECTS} times")


class PublicTransport(httpx2.AsyncBaseTransport):
    """Connects to public addresses only, and refuses a host if any of its addresses is not public.

    It uses the proxies that environment variables name. A proxy resolves names itself. With a proxy, a host
    whose name this computer cannot resolve is therefore not checked.
    """

    def __init__(
        self,
        *,
        resolve: Resolve | None = None,
        direct: httpx2.AsyncBaseTransport | None = None,
        proxies: Mapping[str, str] | None = None,
    ) -> None:
        self._resolve = resolve or _resolved
        self._direct = direct or httpx2.AsyncHTTPTransport(
            limits=httpx2.Limits(max_keepalive_connections=0)  # hosts with the same address share none
        )
        self._proxies = urllib.request.getproxies() if proxies is None else proxies
        self._by_proxy: dict[str, httpx2.AsyncBaseTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises DownloadFailed for an address that is not public, or one of httpx's
        errors."""
        if request.url.scheme not in ("http", "https"):
            raise httpx2.UnsupportedProtocol(
                f"{str(request.url)[:200]!r} cannot be downloaded: its scheme must be http or https"
            )
        host, proxy = request.url.raw_host.decode(), self._proxy_of(request.url)
        try:
            addresses = await self._resolve(host, request.url.port or 0)
        except UnicodeError as error:  # a proxy could not resolve it either
            raise DownloadFailed(
                f"{host[:200]!r} is not a valid host name: each part between dots needs 1 to 63 characters"
            ) from error
        except OSError as error:
            if proxy is None:
                why = f"{host} has no address: {error}"
                if error.errno in UNKNOWN_NAME:
                    raise DownloadFailed(why) from error
                raise httpx2.ConnectError(why) from error
            addresses = []
        for address in addresses:
            if not is_public(address):
                raise DownloadFailed(f"{host} is refused: {address} is not an address of the public network")
        if proxy is not None:
            if proxy not in self._by_proxy:
                self._by_proxy[proxy] = _through(proxy)
            return await self._by_proxy[proxy].handle_async_request(request)
        return await self._connected(request, addresses)

    def _proxy_of(self, url: httpx2.URL) -> str | None:
        proxy = self._proxies.get(url.scheme) or self._proxies.get("all")
        return None if proxy is None or urllib.request.proxy_bypass(url.host) else proxy

    async def _connected(self, request: httpx2.Request, addresses: Sequence[str]) -> httpx2.Response:
        failed: httpx2.TransportError = httpx2.ConnectError(f"{request.url.host} has no address")
        for address in addresses:
            try:
                return await self._direct.handle_async_request(_at(request, address))
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failed = error
        raise failed

    async def aclose(self) -> None:
        for transport in (self._direct, *self._by_proxy.values()):
            await transport.aclose()


def _at(request: httpx2.Request, address: str) -> httpx2.Request:
    """Return the same request, sent to this address of its host.

    The headers and the TLS check keep the name of the host."""
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        extensions={**request.extensions, "sni_hostname": request.url.host},
    )


def _through(proxy: str) -> httpx2.AsyncBaseTransport:
    return httpx2.AsyncHTTPTransport(proxy=proxy)


async def _resolved(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def is_public(address: str) -> bool:
    """Whether an address belongs to the public network.

    False for addresses of this computer and of private networks, link-local addresses (where clouds serve
    their metadata), multicast and reserved addresses, and IPv6 addresses that contain such an IPv4 address.
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found in NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return found.is_global and not found.is_multicast
