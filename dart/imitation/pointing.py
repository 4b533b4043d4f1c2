"""Steps that teach pointing: a page, an instruction that names one of its elements, and a click on it.

The instructions are those of `dart.grounding.queries`. A step needs no oracle, so the pages of any task give
some, also those of tasks that nothing here can solve.
"""

from collections.abc import Sequence

from dart.core.actions import Click, format_action
from dart.core.screenspot import GroundingSample
from dart.core.types import Step
from dart.policy.codec import PromptCodec
from dart.policy.protocols import Screen


def pointing_steps(
    samples: Sequence[GroundingSample], codec: PromptCodec
) -> tuple[list[Step], dict[str, Screen]]:
    """Return one step for each sample, and the samples' screenshots, decoded, by file name without suffix."""
    images = {sample.image.stem: sample.image for sample in samples}
    screens = {name: codec.screen(name, image.read_bytes()) for name, image in images.items()}
    return [_step(sample, screens[sample.image.stem], codec) for sample in samples], screens


def _step(sample: GroundingSample, screen: Screen, codec: PromptCodec) -> Step:
    x, y = sample.box.centre
    answer = format_action(Click(int(x), int(y)))
    instruction = sample.instruction
    return Step(
        screenshot_sha256=screen.sha256,
        prompt_ids=tuple(codec.encode_prompt(instruction, [], screen.frame)),
        token_ids=tuple(codec.encode_action(answer, instruction, screen.frame)),
        logprobs=(),
        entropies=(),
        answer=answer,
        policy_version=0,
        observe_ms=0.0,
        generate_ms=0.0,
        act_ms=0.0,
    )
