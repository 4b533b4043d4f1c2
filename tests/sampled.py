"""Steps as an environment records them, from what an engine really answered."""

from dart.core.types import GenerateRequest, Generation, Step


def recorded(asked: GenerateRequest, made: Generation) -> Step:
    """The step of one answer; nothing took any time."""
    return Step(
        screenshot_sha256=asked.screenshot_sha256,
        images=made.images,
        prompt_ids=made.prompt_ids,
        token_ids=made.token_ids,
        logprobs=made.logprobs,
        entropies=made.entropies,
        answer=made.answer,
        centres=made.centres,
        policy_version=made.policy_version,
        observe_ms=0.0,
        generate_ms=0.0,
        act_ms=0.0,
    )
