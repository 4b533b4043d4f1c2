"""Erlang/OTP: `supervisor` and `gen_server` themselves. Its processes are light ones inside one real one.

So its figures are the goal of the semantics, not of the speed: `exit(Pid, kill)` stands for SIGKILL, a few
kilobytes for the memory of a real process, and 300 KB by reference is a binary the virtual machine shares.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.peers import protocol

REASONS = {
    "hang": "OTP does not look whether a process hangs (`heart` looks after the whole virtual machine)"
}
SOURCE = Path(__file__).with_name("otp_peer.erl")


def _measure(measurement: str, *numbers: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["erlc", "-o", folder, str(SOURCE)], check=True, stdout=sys.stderr)
        # Without the reports of the logger, which would be printed among the figures.
        quiet = ["erl", "-noshell", "-kernel", "logger_level", "none"]
        call = [*quiet, "-pa", folder, "-s", "otp_peer", "main", "-extra", measurement]
        ran = subprocess.run([*call, *map(str, numbers)], check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return figures


def restart(params: dict[str, Any]) -> dict[str, Any]:
    figures = _measure("restart", params["children"], params["kills"])
    return figures | {"wrong_reasons": ["not killed"] * int(figures.pop("wrong"))}


def messages(params: dict[str, Any]) -> dict[str, Any]:
    return _measure("messages", params["round_trips"], params["stream"], params["references"])


def idle(params: dict[str, Any]) -> dict[str, Any]:
    return _measure("idle", params["children"], int(params["seconds"]))


def _version() -> str:
    if not shutil.which("erlc"):
        raise ModuleNotFoundError("there is no erlc on the path")
    tell = 'io:format("~s", [erlang:system_info(otp_release)]), halt().'
    return subprocess.run(
        ["erl", "-noshell", "-eval", tell], capture_output=True, text=True, check=True
    ).stdout


if __name__ == "__main__":
    protocol.serve({"restart": restart, "messages": messages, "idle": idle}, REASONS, _version)
