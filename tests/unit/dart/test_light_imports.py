"""The command line answers at once: nothing heavy is loaded before a command needs it."""

import subprocess
import sys

import pytest

HEAVY = (
    *("torch", "transformers", "vllm", "matplotlib", "plotext", "sqlalchemy", "thespian", "zmq", "numpy"),
    *("starlette", "uvicorn", "jinja2"),
)


@pytest.mark.parametrize(
    "module",
    [
        *("dart.cli.main", "dart.config", "dart.types", "dart.rundir", "dart.preflight", "dart.observe.live"),
        *("dart.observe.reading", "dart.store.browsing", "dart.environments.actor"),
    ],
)
def test_importing_loads_no_heavy_library(module: str) -> None:
    program = f"import sys, {module}; print(*({HEAVY!r} & sys.modules.keys()))"
    program = program.replace(repr(HEAVY), repr(set(HEAVY)))

    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert ran.stdout.split() == []


def test_the_configuration_is_loaded_only_by_commands_that_need_it() -> None:
    program = "import sys, dart.cli.main; print('pydantic' in sys.modules)"

    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert ran.stdout == "False\n"
