"""What a control node says of itself in the record."""

from dart.store.control_node import ControlNode

NODE = ControlNode(
    address="10.0.0.1:4000",
    token="a-secret",
    version="1.0",
    pid=7,
    config="[run]\n",
    session='{"elapsed_s": 60.0}',
    began_unix_s=100.25,
    seen_unix_s=101.0,
)
