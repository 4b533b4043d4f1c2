"""Ask the inspection endpoint of a control node. Each request ends within a deadline."""

import http.client
from collections.abc import Collection
from urllib.parse import urlencode

import msgspec

from dart.core.errors import SilentError
from dart.run.control_protocol import ControlAnswer, Malformed, Request, decode_answer, encode
from dart.run.control_socket import GRACE_S
from dart.run.ending import RECEIVED_S
from dart.run.inspection_protocol import (
    ANSWER_BYTES_MOST,
    FRAME_TYPE,
    FileState,
    MachineState,
    decode_state,
)
from dart.store.control_node import ControlNode

ANSWER_S = 5.0

REASON_CHARACTERS = 500


class Unreachable(Exception):
    """The endpoint did not answer as it should.

    The message is a predicate without its subject, such as `does not answer within 5 s`: callers put the name
    of the endpoint before it.
    """


class InspectionClient:
    """Asks the inspection endpoint of one control node.

    Every method raises Unreachable if the endpoint does not answer as it should, and SilentError if the
    endpoint answers that it failed.

    answer_s   longest wait, in seconds, for the connection and for each part of an answer
    """

    def __init__(self, node: ControlNode, answer_s: float = ANSWER_S) -> None:
        self._node = node
        self._answer_s = answer_s

    def state(self, about: Collection[str] = ()) -> MachineState:
        """Return the state of the run and its processes.

        about   names of the actors whose logs and crash files are to be listed
        """
        content = self._ask("GET", f"/state?{urlencode([('about', name) for name in about])}")
        try:
            return decode_state(content)
        except msgspec.MsgspecError as error:
            raise Unreachable(
                f"sends an answer that this version of dartrl does not understand: {error}"
            ) from error

    def part(self, file: FileState, offset: int) -> bytes:
        """Return the next bytes of a file from an offset on.

        The bytes are empty at the end of the file, and if another file took its name.
        """
        asked = {"folder": file.folder, "name": file.name, "inode": file.inode, "offset": offset}
        return self._ask("GET", f"/file?{urlencode(asked)}")

    def control(self, call: Request) -> ControlAnswer:
        """Send a request to the control socket of the run, through the endpoint, and return the answer."""
        content = self._ask("POST", "/control", encode(call), call.wait_ms / 1000 + GRACE_S)
        try:
            return decode_answer(content)
        except Malformed as error:
            raise SilentError(str(error)) from error

    def end(self, *, now: bool) -> None:
        """Ask the run to end: at once if `now`, else after a drain."""
        self._ask("POST", f"/end?{urlencode({'now': int(now)})}", b"", RECEIVED_S)

    def _ask(self, method: str, target: str, body: bytes | None = None, work_s: float = 0.0) -> bytes:
        """Send an HTTP request and return the content of the answer.

        The connection is direct: proxies in environment variables are ignored.

        work_s   seconds that the endpoint may need for its work, in addition to `answer_s`
        raises   Unreachable without an answer, and for a token that is refused; SilentError, with the text of
                 the answer, for an answer with another status than 200
        """
        if not self._node.address:
            raise Unreachable("has no address at which it answers other machines")
        wait_s = self._answer_s + work_s
        headers = {"authorization": f"Bearer {self._node.token}", "content-type": FRAME_TYPE}
        try:
            connection = http.client.HTTPConnection(self._node.address, timeout=wait_s)
            try:
                connection.request(method, target, body, headers)
                answer = connection.getresponse()
                content = answer.read(ANSWER_BYTES_MOST + 1)
                if answer.length and len(content) <= ANSWER_BYTES_MOST:
                    raise http.client.IncompleteRead(content, answer.length)
            finally:
                connection.close()
        except TimeoutError as error:
            raise Unreachable(f"does not answer within {wait_s:g} s") from error
        except (OSError, http.client.HTTPException, ValueError) as error:  # a token that is no header
            raise Unreachable(f"does not answer ({error or type(error).__name__})") from error
        if len(content) > ANSWER_BYTES_MOST:
            raise Unreachable(f"sends an answer of more than {ANSWER_BYTES_MOST} bytes")
        if answer.status == 401:
            raise Unreachable("refuses the token that is in the record")
        if answer.status != 200:
            said = content[:REASON_CHARACTERS].decode(errors="replace").strip()
            raise SilentError(said or f"the inspection endpoint answered with status {answer.status}")
        return content
