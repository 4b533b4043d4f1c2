"""The tests' guest server, with a real desktop behind it: what `provider = "local"` starts in its sandbox."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import mss
import mss.tools
import uvicorn

from tests.unit.environments.osworld.guest_server import FakeDesktop, guest_server

CURSOR_ATTEMPTS = 10


class RealDesktop(FakeDesktop):
    """Commands, programs and applications run; pictures are of the screen, with the pointer."""

    def screenshot(self) -> bytes:
        """The screen; for a moment after the window manager's death the X server has no cursor to show."""
        for _ in range(CURSOR_ATTEMPTS):
            with suppress(mss.ScreenShotError), mss.MSS(with_cursor=True) as camera:
                shot = camera.grab(camera.monitors[0])
                return bytes(mss.tools.to_png(shot.rgb, shot.size, level=1) or b"")
            time.sleep(0.2)
        with mss.MSS() as camera:
            shot = camera.grab(camera.monitors[0])
            return bytes(mss.tools.to_png(shot.rgb, shot.size, level=1) or b"")

    def command(self, command: Any, shell: bool) -> tuple[str, str, int]:
        ended = subprocess.run(command, shell=shell, capture_output=True, text=True, timeout=120)
        return ended.stdout, ended.stderr, ended.returncode

    def add_window(self, title: str, *, active: bool = True, state: str = "S") -> None:
        command = self.launched[-1]
        subprocess.Popen(command, shell=isinstance(command, str))


if __name__ == "__main__":
    with mss.MSS() as camera:
        screen = camera.monitors[0]
    desktop = RealDesktop(Path(os.environ["HOME"]), width=screen["width"], height=screen["height"])
    uvicorn.run(guest_server(desktop), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
