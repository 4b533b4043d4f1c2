"""Steps that teach pointing: a page, an instruction that names one of its elements, and a click on it.

The instructions are those of `dart.grounding.queries`, and the same in other words, so that a policy learns
what a word means and not what one sentence means. A step needs no oracle, so the pages of any task give some,
also those of tasks that nothing here can solve.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence

from dart.core.actions import Click, format_action
from dart.core.screenspot import GroundingSample
from dart.core.types import Step
from dart.grounding.queries import ORDINALS
from dart.imitation.page_layouts import PageLayout
from dart.imitation.samples import ImitatedStep
from dart.policy.codec import PromptCodec
from dart.policy.protocols import Screen

OTHER_NAMES = {
    "text field": ("text box", "textbox", "text input", "input"),
    "text area": ("textarea",),
    "radio button": ("radio",),
    "checkbox": ("check box",),
}
"""Other usual names of kinds of elements."""

NUMERALS = dict(zip(ORDINALS, ("1st", "2nd", "3rd", "4th", "5th"), strict=True))
"""The ordinals of `dart.grounding.queries`, written with a digit."""

VERBS = ("click", "click on", "press", "select", "focus on")

PHRASINGS = 2
"""Number of instructions in other words for each of `dart.grounding.queries`."""


def pointing_steps(
    samples: Sequence[GroundingSample], codec: PromptCodec, *, moved: bool = False
) -> dict[str, list[ImitatedStep]]:
    """Return the steps of samples by the kind of the element.

    moved   whether a page is shown with other distances each time (`dart.imitation.page_layouts`)
    """
    pages = {sample.image: sample for sample in samples}
    screens = {image: codec.screen(image.stem, image.read_bytes()) for image in pages}
    layouts = {
        image: PageLayout(screens[image].pixels, sample.elements) if moved else None
        for image, sample in pages.items()
    }
    examples: defaultdict[str, list[ImitatedStep]] = defaultdict(list)
    for sample in samples:
        screen, layout = screens[sample.image], layouts[sample.image]
        named = quoted(sample)
        examples[sample.kind] += [
            ImitatedStep(_step(text, sample, screen, codec), screen, layout, named)
            for text in instructions(sample)
        ]
    return dict(examples)


def instructions(sample: GroundingSample) -> Iterator[str]:
    """Yield the sample's instruction, then PHRASINGS in other words that a click on the same element answers.

    The same sample has the same instructions. An element that is named by its place among several of its kind
    may also be meant by "a" element of its kind.
    """
    yield sample.instruction
    draw = random.Random(f"{sample.image.stem} {sample.instruction}")
    for _ in range(PHRASINGS):
        text = f"{draw.choice(VERBS)} {_target(sample, draw)}"
        yield draw.choice((text, f"{text[0].upper()}{text[1:]}."))


def _target(sample: GroundingSample, draw: random.Random) -> str:
    """Return words for the sample's element, such as 'a "radio"' or "the 2nd button"."""
    name = draw.choice((sample.kind, *OTHER_NAMES.get(sample.kind, ())))
    named = draw.choice((name, name, f'"{name}"', f'"{name}" element'))
    words = _words(sample)
    match sample.query:
        case "kind":
            return f"the {named}"
        case "order":
            ordinal = words.split()[1]
            return draw.choice((f"a {named}", f"the {ordinal} {name}", f"the {NUMERALS[ordinal]} {name}"))
        case "text":
            text = words.strip('"')
            return draw.choice((words, text, f"the {name} {words}", f"{name} {text}"))
    return words


def quoted(sample: GroundingSample) -> str:
    """Return the text by which the sample's instruction names its element; empty if it names it otherwise."""
    return _words(sample).strip('"') if sample.query == "text" else ""


def _words(sample: GroundingSample) -> str:
    """Return the words for the sample's element in its own instruction."""
    return sample.instruction.removeprefix("click ")


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
