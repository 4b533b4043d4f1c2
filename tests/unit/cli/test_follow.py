"""Following ends with Ctrl-C, wherever it is in its work."""

import signal

from dart.cli.output import Format, follow_up, line_by_line


def test_what_is_new_is_shown_until_ctrl_c_which_waits_for_the_look_it_comes_in() -> None:
    looks = iter([["a"], [], ["b", "c"]])
    shown: list[str] = []
    before = signal.getsignal(signal.SIGINT)

    def read_new() -> list[str]:
        new = next(looks)
        if "c" in new:
            signal.raise_signal(signal.SIGINT)
        return new

    follow_up(read_new, shown.extend, every_s=0.0)

    assert shown == ["a", "b", "c"]
    assert signal.getsignal(signal.SIGINT) is before


def test_what_is_endless_is_no_single_value() -> None:
    assert [line_by_line(one) for one in Format] == [Format.TABLE, Format.WIDE, Format.JSONL, Format.JSONL]
