"""The MiniWoB++ tasks whose pages can play another episode without being loaded again.

After an episode of any actions, such a page shows for every seed that was tried what a freshly loaded page
shows, to the last bit, and goes on like it. `python -m benchmarks.miniwob_restarts` tries all tasks. The list
has those that have an oracle and were equal for at least twelve seeds.
"""

RESTARTABLE = frozenset(
    f"miniwob/{name}"
    for name in (
        *("choose-list", "click-button", "click-button-sequence", "click-checkboxes"),
        *("click-checkboxes-transfer", "click-color", "click-dialog", "click-dialog-2"),
        *("click-link", "click-option", "click-tab", "click-tab-2", "click-tab-2-easy"),
        *("click-tab-2-hard", "click-tab-2-medium", "click-test", "click-test-2"),
        *("click-test-transfer", "click-widget", "copy-paste", "drag-box", "enter-password"),
        *("enter-text", "enter-text-2", "focus-text", "focus-text-2", "grid-coordinate"),
        *("identify-shape", "login-user", "simple-arithmetic", "text-transform", "unicode-test"),
        *("use-spinner",),
    )
)
