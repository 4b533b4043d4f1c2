"""The restart budget: at most max_restarts in any max_seconds (OTP restart intensity). Pure.

OTP restarts at once. Here a backoff may come first, and on the wall clock the failures of a child would leave
the window while it waits: its budget would never be spent. So moments are taken on the clock of each child,
which stops during its waits (`Child.own_clock_s`). A wait changes when a budget is spent, never whether.
"""


def add_restart(
    restarts: tuple[float, ...], now_s: float, *, max_restarts: int, max_seconds: float
) -> tuple[tuple[float, ...], bool]:
    """Note one more restart.

    restarts   moments of earlier ones, in seconds on the same clock as now_s
    returns    the moments still inside the window with this one added, and whether the budget still holds
    """
    window = (*(moment for moment in restarts if now_s - moment <= max_seconds), now_s)
    return window, len(window) <= max_restarts
