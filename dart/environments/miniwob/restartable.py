"""The MiniWoB++ tasks whose pages can play another episode without being loaded again.

After an episode of any actions, such a page shows for every seed that was tried what a freshly loaded page
shows, to the last bit, and goes on like it. `python -m benchmarks.miniwob_restarts` tries all tasks.
"""

RESTARTABLE = frozenset(
    f"miniwob/{name}"
    for name in (
        *("click-dialog", "click-tab", "click-test-2", "click-widget", "enter-password", "enter-text"),
        *("focus-text-2", "login-user"),
    )
)
