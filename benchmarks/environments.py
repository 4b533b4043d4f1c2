"""What the environment layer costs: steps a second against a bare protocol client, in the same run.

A step is one click and the screenshot after it, on a page where the click hits nothing.

* ``bare``: a loop over the debugging pipe that does no more than write the four calls of a
  step and wait for their answers; as many browsers as pages.
* ``shared``: the same loop, all pages in one browser. For information.
* ``environment``: `MiniWobEnvironment`, ``step`` and ``observe``; one browser each.

The three take turns, several times, so that whatever else the machine does hits all of them.
``python -m benchmarks.environments`` prints a table, writes ``benchmarks/out/environments.json``
and ends with exit code 1 below 90 %. With `--quick` there is one page and two short turns, and the
ratio is printed, not judged.
"""

import argparse
import asyncio
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from dart.core.actions import Click
from dart.environments.browser.cdp import FLAGS
from dart.environments.browser.environment import CHROMIUM
from dart.environments.miniwob.environment import MiniWobEnvironment
from dart.environments.miniwob.pages import HEIGHT, WIDTH, page_url

TASK = "miniwob/enter-text"
ELSEWHERE = Click(5, 205)
OUT = Path(__file__).parent / "out" / "environments.json"

GOAL = 0.9
"""The layer keeps at least this part of the bare client's rate."""

Stepper = Callable[[], Awaitable[object]]
"""One step of one page."""


class BareBrowser:
    """The least that drives a browser: no deadlines, no faults, no events."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._stdin, self._stdout = process, process.stdin, process.stdout
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._id = 0
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            message = json.loads((await self._stdout.readuntil(b"\0"))[:-1])
            if "id" in message:
                self._waiting.pop(message["id"]).set_result(message["result"])

    def post(self, method: str, session: str = "", **params: Any) -> asyncio.Future[dict[str, Any]]:
        self._id += 1
        message = {"id": self._id, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self._waiting[self._id] = asyncio.get_running_loop().create_future()
        self._stdin.write(json.dumps(message).encode() + b"\0")
        return self._waiting[self._id]

    async def open_page(self, url: str) -> Stepper:
        context = (await self.post("Target.createBrowserContext"))["browserContextId"]
        target = await self.post("Target.createTarget", url="about:blank", browserContextId=context)
        attached = await self.post("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        session = attached["sessionId"]
        frame = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        await self.post("Emulation.setDeviceMetricsOverride", session, **frame)
        await self.post("Page.navigate", session, url=url)
        loaded = "new Promise((r) => { const f = () => core.cover_div ? r() : setTimeout(f, 5); f() })"
        await self.post("Runtime.evaluate", session, expression=loaded, awaitPromise=True)
        begin = "core.EPISODE_MAX_TIME = 1e9; core.startEpisodeReal()"
        await self.post("Runtime.evaluate", session, expression=begin)

        async def step() -> None:
            at = {"x": ELSEWHERE.x, "y": ELSEWHERE.y}
            left = {**at, "button": "left", "clickCount": 1}
            await asyncio.gather(
                self.post("Input.dispatchMouseEvent", session, type="mouseMoved", **at),
                self.post("Input.dispatchMouseEvent", session, type="mousePressed", buttons=1, **left),
                self.post("Input.dispatchMouseEvent", session, type="mouseReleased", **left),
                self.post("Page.captureScreenshot", session, format="png", optimizeForSpeed=True),
            )

        return step

    async def close(self) -> None:
        self._reader.cancel()
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def bare_browser(profile: Path) -> AsyncIterator[BareBrowser]:
    pipes = 'exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'
    command = ["sh", "-c", pipes, CHROMIUM, *FLAGS, "--no-sandbox", f"--user-data-dir={profile}"]
    pipe = asyncio.subprocess.PIPE
    browser = BareBrowser(
        await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=1 << 24)
    )
    try:
        yield browser
    finally:
        await browser.close()


async def bare_pages(stack: AsyncExitStack, scratch: Path, pages: int, browsers: int) -> list[Stepper]:
    opened = [
        await stack.enter_async_context(bare_browser(scratch / f"bare-{browsers}-{n}"))
        for n in range(browsers)
    ]
    return [await opened[n % browsers].open_page(page_url(TASK, n)) for n in range(pages)]


async def environment_pages(stack: AsyncExitStack, scratch: Path, pages: int) -> list[Stepper]:
    return [await _environment_page(stack, scratch / f"environment-{n}", n) for n in range(pages)]


async def _environment_page(stack: AsyncExitStack, scratch: Path, seed: int) -> Stepper:
    environment = MiniWobEnvironment(scratch)
    stack.push_async_callback(environment.close)
    await environment.reset(TASK, seed, deadline_s=60)

    async def step() -> None:
        await environment.step(ELSEWHERE, deadline_s=30)
        await environment.observe(deadline_s=30)

    return step


async def steps_per_s(pages: Sequence[Stepper], duration_s: float) -> float:
    """Step all pages at the same time for ``duration_s``."""
    started = time.perf_counter()

    async def run(step: Stepper) -> int:
        steps = 0
        while time.perf_counter() - started < duration_s:
            await step()
            steps += 1
        return steps

    steps = sum(await asyncio.gather(*(run(page) for page in pages)))
    return steps / (time.perf_counter() - started)


async def compare(pages: int, repetitions: int, duration_s: float) -> dict[str, list[float]]:
    """Rates of the three ways to drive ``pages`` pages, taking turns."""
    async with AsyncExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        ways = {
            "bare": await bare_pages(stack, scratch, pages, browsers=pages),
            "shared": await bare_pages(stack, scratch / "shared", pages, browsers=1),
            "environment": await environment_pages(stack, scratch, pages),
        }
        rates: dict[str, list[float]] = {way: [] for way in ways}
        for repetition in range(repetitions + 1):
            for way, steppers in ways.items():
                rate = await steps_per_s(steppers, duration_s)
                if repetition > 0:  # the first one warms up
                    rates[way].append(rate)
        return rates


def summary(pages: int, rates: dict[str, list[float]]) -> dict[str, Any]:
    ratios = [ours / bare for ours, bare in zip(rates["environment"], rates["bare"], strict=True)]
    medians = {way: statistics.median(values) for way, values in rates.items()}
    return {
        "pages": pages,
        "medians": medians,
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "rates": rates,
    }


def row(result: dict[str, Any]) -> str:
    cells = [f"{result['pages']:5}"]
    for way, values in result["rates"].items():
        cells.append(f"{result['medians'][way]:6.1f} ({min(values):5.1f} to {max(values):5.1f})")
    ratios = result["ratios"]
    cells.append(f"{100 * result['ratio']:5.1f} % ({100 * min(ratios):.0f} to {100 * max(ratios):.0f})")
    return "  ".join(cells)


def main() -> None:
    """Run the comparison; exit code 1 when the layer misses `GOAL`."""
    parser = argparse.ArgumentParser(
        description="Steps a second of the environment layer and of a bare client."
    )
    parser.add_argument("--pages", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one turn")
    parser.add_argument("--quick", action="store_true", help="one page, two short turns, no goal is judged")
    options = parser.parse_args()
    if options.quick:
        options.pages, options.repetitions, options.seconds = [1], 2, 0.5
    print("steps/s, median (lowest to highest); environment against bare, turn by turn")
    print("pages  bare                     shared                   environment              ratio")
    results = []
    for pages in options.pages:
        results.append(summary(pages, asyncio.run(compare(pages, options.repetitions, options.seconds))))
        print(row(results[-1]), flush=True)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"machine": platform.platform(), "results": results}, indent=1))
    print(f"written to {OUT}")
    is_missed = any(result["ratio"] < GOAL for result in results)
    sys.exit(1 if is_missed and not options.quick else 0)


if __name__ == "__main__":
    main()
