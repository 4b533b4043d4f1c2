"""The restart budget: at most max_restarts in any max_seconds (OTP restart intensity). Pure.

OTP restarts at once. Here a backoff may come between, and on the wall clock a child that fails at once would
leave the window by waiting: its budget would never be spent. So moments are taken on the clock of each child,
which stands still during its waits (`Child.own_clock_s`). Waits change when a budget is spent, never whether.
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
