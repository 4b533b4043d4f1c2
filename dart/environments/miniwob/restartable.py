"""The MiniWoB++ tasks whose pages can play another episode without being loaded again.

Such a page equals a freshly loaded page, whatever actions its earlier episodes had: for the same seed it
shows the same pixels and behaves in the same way. `python -m benchmarks.miniwob_restarts` tries this for all
tasks. The list has the tasks that have an oracle and passed for at least twelve seeds.
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
