"""Tokens are drawn where the logits are, from a generator that the engine's own one seeds."""

import pytest
import torch

from dart.policy.pointer.patches import PatchGrid
from dart.policy.protocols import PointerTokens
from dart.policy.sampling import drawn_answers, generator_on
from dart.policy.vlm_drawing import PointerDraw

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def test_on_the_cpu_the_engines_own_generator_draws() -> None:
    engines = torch.Generator().manual_seed(3)
    assert generator_on(CPU, engines) is engines


def test_on_a_gpu_every_batch_has_a_generator_of_its_own_and_the_same_seed_repeats_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, engines = [], [torch.Generator().manual_seed(3) for _ in range(2)]
    on_cpu = torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda device: made.append(device) or on_cpu())
    seeds = [[generator_on(GPU, one).initial_seed() for _ in range(3)] for one in engines]
    assert made == [GPU] * 6
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 3


END, WORD, POINTER, FIRST_PATCH = 1, 2, 5, 10


def greedily_drawn(*rows: tuple[int, ...]) -> PointerDraw:
    """Draws greedily, row by row, the given tokens; after a pointer, the patch with most attention."""
    draw = PointerDraw(
        [0.0] * len(rows),
        torch.Generator(),
        forbidden=[9],
        pointer=PointerTokens(token_id=POINTER, first_patch_id=FIRST_PATCH),
        grids=[PatchGrid(2, 2)] * len(rows),
        attend=lambda: torch.eye(4)[: len(rows)],
    )
    for tokens in zip(*rows, strict=True):
        draw(torch.empty(0), torch.nn.functional.one_hot(torch.tensor(tokens), 10).float())
    return draw


def test_an_answer_has_the_points_of_its_own_pointers_and_none_of_what_is_drawn_after_its_end() -> None:
    draw = greedily_drawn((WORD, END, POINTER, WORD), (POINTER, WORD, END, WORD))
    ended, pointing = drawn_answers(draw.drawn, (END,), draw.centres)
    assert (ended.token_ids, ended.centres) == ((WORD, END), ())
    assert pointing.token_ids == (POINTER, FIRST_PATCH + 1, END)
    assert len(pointing.centres) == 1


def test_a_pointer_without_room_for_its_patch_gives_no_point() -> None:
    draw = greedily_drawn((WORD, POINTER))
    (answer,) = drawn_answers(draw.drawn, (END,), draw.centres)
    assert (answer.token_ids, answer.centres) == ((WORD, POINTER), ())
