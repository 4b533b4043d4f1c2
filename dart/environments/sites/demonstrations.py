"""Demonstrations on sites: ``python -m dart.environments.sites.demonstrations --out DIR``.

``--tasks sites/mail/easy --episodes 100`` says which tasks and how many successful episodes of each.
`dart.environments.browser.demonstrations` describes the files in DIR.
"""

from dart.environments.browser.demonstrations import OracleKind, run_command
from dart.environments.sites.environment import SitesEnvironment
from dart.environments.sites.oracles import solution
from dart.environments.sites.tasks import EXPLORE, task_ids

SITES: OracleKind[SitesEnvironment] = OracleKind(
    make=SitesEnvironment,
    oracle_of=lambda task_id: solution,
    tasks=tuple(task_id for task_id in task_ids() if not task_id.endswith(EXPLORE)),
)

if __name__ == "__main__":
    run_command(SITES)
