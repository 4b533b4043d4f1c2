"""Makes the engine that `rollout.engine` names. Only the library of that engine is imported."""

from pathlib import Path

from dart.config.config import Config
from dart.inference.protocol import Engine


def make_engine(
    config: Config,
    folder: Path,
    version: int,
    *,
    seed: int,
    log: Path,
    sockets: Path,
) -> Engine:
    """An engine that answers with the checkpoint in `folder`.

    log, sockets   for an engine with processes of its own; see `VllmEngine`
    Raises CorruptCheckpoint or CheckpointError when the checkpoint cannot be read.
    """
    name, rollout = config.rollout.engine, config.rollout
    if name == "simulated":
        from dart.inference.simulated_engine import SimulatedEngine

        return SimulatedEngine(folder, version, simulated=config.simulation, seed=seed)
    if name == "oracle":
        from dart.inference.oracle_engine import OracleEngine

        return OracleEngine(folder, version, simulated=config.simulation, seed=seed)
    from dart.policy.prompt_spec import prompt_spec_of

    prompt_spec = prompt_spec_of(config.context)
    if name == "vllm":
        from dart.inference.vllm_engine import VllmEngine

        return VllmEngine(
            folder,
            version,
            rollout=rollout,
            prompt_spec=prompt_spec,
            seed=seed,
            log=log,
            sockets=sockets,
        )
    from dart.inference.transformers_engine import TransformersEngine

    return TransformersEngine(folder, version, threads=rollout.threads, seed=seed, prompt_spec=prompt_spec)
