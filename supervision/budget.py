"""The restart budget: at most max_restarts in any max_seconds (OTP restart intensity). Pure."""


def add_restart(
    restarts: tuple[float, ...], now_s: float, *, max_restarts: int, max_seconds: float
) -> tuple[tuple[float, ...], bool]:
    """Note one more restart.

    restarts   moments of earlier ones, in seconds
    returns    the moments still inside the window with this one added, and whether the budget still holds
    """
    window = (*(moment for moment in restarts if now_s - moment <= max_seconds), now_s)
    return window, len(window) <= max_restarts
