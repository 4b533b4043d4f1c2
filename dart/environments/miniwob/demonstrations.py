"""Demonstrations on MiniWoB++: ``python -m dart.environments.miniwob.demonstrations --out DIR``.

``--tasks miniwob/click-test --episodes 100`` says which tasks and how many successful episodes of each.
`dart.environments.browser.demonstrations` describes the files in DIR.
"""

from dart.environments.browser.demonstrations import OracleKind, run_command
from dart.environments.miniwob.environment import MiniWobEnvironment
from dart.environments.miniwob.oracles import ORACLES

MINIWOB: OracleKind[MiniWobEnvironment] = OracleKind(
    make=MiniWobEnvironment, oracle_of=ORACLES.__getitem__, tasks=tuple(sorted(ORACLES))
)

if __name__ == "__main__":
    run_command(MINIWOB)
