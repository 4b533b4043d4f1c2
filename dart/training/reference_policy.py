"""Which policy the KL term refers to: the base policy with which a run began, by its hash. Imports no torch.

Each checkpoint names this hash in the learner's state, because the files of the base policy may be replaced
while a run is not running, for instance those of a bundled policy by another version of dartrl.
"""

from pathlib import Path

from dart.config.sections import TrainingSettings
from dart.policy.adapter_files import CONFIG_FILE, fingerprint
from dart.policy.protocols import UnsupportedCheckpoint
from dart.store.checkpoints import CheckpointState

BASE_SHA256 = "base_sha256"
"""Key of the hash in the learner's state."""


def base_sha256(state: CheckpointState) -> str | None:
    """Return the hash of the base policy that a version was trained from; None if it is not recorded."""
    return state.learner.get(BASE_SHA256)


def refuse_other_reference(folder: Path, state: CheckpointState, configured: TrainingSettings) -> None:
    """Raise UnsupportedCheckpoint if the KL term would refer to another base policy than that of a version.

    folder   folder of the version, for the message
    state    state of the learner of that version

    A folder without a policy passes, because loading it says more.
    """
    began_with, base = base_sha256(state), configured.policy
    if configured.kl_beta == 0 or began_with is None or not (base / CONFIG_FILE).is_file():
        return
    if (found := fingerprint(base)) != began_with:
        raise UnsupportedCheckpoint(
            f"{folder} was trained from a base policy of hash {began_with[:12]}, and that in {base} has hash "
            f"{found[:12]} now, so the KL term (training.kl_beta) would measure the distance from another "
            "policy. Name a folder with the earlier files in training.policy, set training.kl_beta to 0, or "
            "start a new run"
        )
