"""Steps that teach pointing: a page, an instruction that names one of its elements, and a click on it.

The instructions are those of `dart.grounding.queries`, and others that any element of a kind fits. A step
needs no oracle, so the pages of any task give some, also those of tasks that nothing here can solve.
"""

from collections.abc import Iterator, Sequence

from dart.core.actions import Click, format_action
from dart.core.screenspot import GroundingSample
from dart.core.types import Step
from dart.policy.codec import PromptCodec
from dart.policy.protocols import Screen


def pointing_steps(
    samples: Sequence[GroundingSample], codec: PromptCodec
) -> tuple[list[Step], dict[str, Screen]]:
    """Return the steps of samples, and the samples' screenshots, decoded, by file name without suffix."""
    images = {sample.image.stem: sample.image for sample in samples}
    screens = {name: codec.screen(name, image.read_bytes()) for name, image in images.items()}
    steps = [
        _step(instruction, sample, screens[sample.image.stem], codec)
        for sample in samples
        for instruction in _instructions(sample)
    ]
    return steps, screens


def _instructions(sample: GroundingSample) -> Iterator[str]:
    """Yield the sample's instruction, and for one of several elements of a kind also that for any of them."""
    yield sample.instruction
    if sample.query == "order":
        yield f"click a {sample.kind}"


def _step(instruction: str, sample: GroundingSample, screen: Screen, codec: PromptCodec) -> Step:
    x, y = sample.box.centre
    answer = format_action(Click(int(x), int(y)))
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
