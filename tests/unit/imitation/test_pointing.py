"""Steps from pages: each is a click on the middle of the element that its instruction names."""

from io import BytesIO
from pathlib import Path

from PIL import Image

from dart.config.config import Config
from dart.core.boxes import Box
from dart.core.screenspot import GroundingSample, save_image
from dart.imitation.pointing import pointing_steps
from dart.imitation.pretrain import OTHER_TASKS, UNSEEN_TASKS, laptop_base
from dart.policy.codec import PromptCodec
from dart.policy.configuration import GuiPolicyConfig
from dart.policy.tokenizer import train_tokenizer

INSTRUCTIONS = ("click the checkbox", "click the second button")
KINDS, QUERIES = ("checkbox", "button"), ("kind", "order")
TOKENIZER = train_tokenizer(INSTRUCTIONS)
CODEC = PromptCodec(TOKENIZER.backend_tokenizer, GuiPolicyConfig(vocab_size=len(TOKENIZER)).image_tokens)


def samples(folder: Path) -> list[GroundingSample]:
    png = BytesIO()
    Image.new("RGB", (160, 210), (255, 0, 0)).save(png, "PNG")
    image = save_image(folder, png.getvalue())
    boxes = (Box(10, 20, 31, 40), Box(100, 60, 160, 210))
    return [
        GroundingSample(
            image=image,
            width_px=160,
            height_px=210,
            instruction=instruction,
            box=box,
            element_type="icon",
            source="miniwob/click-shape",
            kind=kind,
            query=query,
        )
        for instruction, box, kind, query in zip(INSTRUCTIONS, boxes, KINDS, QUERIES, strict=True)
    ]


def test_the_answer_to_an_instruction_is_a_click_on_the_middle_of_its_element(tmp_path: Path) -> None:
    steps, screens = pointing_steps(samples(tmp_path), CODEC)

    (screen,) = screens.values()
    for step, instruction in zip(steps[:2], INSTRUCTIONS, strict=True):
        assert list(step.prompt_ids) == CODEC.encode_prompt(instruction, [])
        assert list(step.token_ids) == CODEC.encode_action(step.answer, instruction, screen.frame)
        assert step.screenshot_sha256 in screens
    assert [step.answer for step in steps[:2]] == [
        "click(start_box='(20,30)')",
        "click(start_box='(130,135)')",
    ]


def test_one_of_several_elements_of_a_kind_also_answers_to_any_of_them(tmp_path: Path) -> None:
    steps, _ = pointing_steps(samples(tmp_path), CODEC)

    assert len(steps) == 3
    assert list(steps[2].prompt_ids) == CODEC.encode_prompt("click a button", [])
    assert steps[2].answer == steps[1].answer


def test_the_base_policy_sees_no_page_of_a_task_that_is_measured_or_kept_apart() -> None:
    recipe = laptop_base()
    job = set(Config().tasks.train)

    assert not {*job, *UNSEEN_TASKS} & set(recipe.page_tasks)
    assert not {*job, *UNSEEN_TASKS} & set(OTHER_TASKS)
    assert not set(UNSEEN_TASKS) & {task for task, _ in recipe.episodes}
    assert recipe.measured == Config().tasks.train
