"""What can be read of style.css without a browser."""

import re

from dart.web.render import static

STYLE = static("style.css").decode()


def test_lines_of_one_chart_differ_also_without_colour() -> None:
    dashes = [re.search(rf"\.c{number} \{{[^}}]*--dash: ([^;]+);", STYLE) for number in range(2, 7)]
    assert len({found[1] for found in dashes if found}) == 5
