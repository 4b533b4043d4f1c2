"""The small vision-language policy: pixels and prompt tokens in, logits of answer tokens out.

A screenshot becomes image tokens through a convolutional stem. Image tokens and prompt form a prefix
with bidirectional attention; answer tokens attend to the prefix and to earlier answer tokens (prefix-LM,
Raffel et al. 2020, arXiv 1910.10683, section 3.2). Coordinates are tokens of the vocabulary; their
logits are a pointer (Vinyals et al. 2015, arXiv 1506.03134) into the stem's map of `bin_px` cells:
the logit of an x token is the score of its column (log-sum-exp over rows), and the logit of a y token is
the score of its cell in the column of the x token before it. docs/decisions/0005-laptop-policy.md gives
the reasons and measurements.

A policy with the pointer head (`coordinates = "pointer"` in its configuration) has patches in place of bins.
After the token `<pointer>` only a patch can follow, with the probabilities of the head
(`dart.policy.pointer.head`); after any other token no patch can follow.

Shapes: B batch, T tokens, K answer positions, D hidden size, R x C pointer rows and columns, m patches.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dart.policy.configuration import GuiPolicyConfig
from dart.policy.pointer.head import HEAD_NAME, NEVER, PointerHead
from dart.policy.protocols import PromptTooLong
from dart.policy.vocabulary import IMAGE, STEP_COUNTERS, special_ids, step_token

TAIL_POSITION = 512
"""Position of the step counter. Later tokens count from here, so that a history or an answer has the same
positions after a short and a long instruction."""

MAX_POSITION = 1024
"""Every position of a prompt is below this one."""

MAX_ANSWER = 512
"""Number of positions for an answer after the longest prompt. A demonstrated answer may be longer than a
sampled one, which has at most `dart.policy.sampling.MAX_ANSWER_TOKENS` tokens."""

EMBEDDING_STD = 0.3

READING_CELLS = 7
"""Number of cells of 8 px along a line from which a word is read."""

PLACE_WAVES = 12
"""Number of frequencies per axis in the sine-cosine features of a place on the screen."""


class PromptError(ValueError):
    """Token ids that cannot be a prompt of this policy."""


KeyValue = tuple[Tensor, Tensor]
"""Keys and values [B, heads, T, head_dim] of one layer."""


@dataclass(frozen=True, slots=True)
class PolicyCache:
    """What the model keeps of all earlier tokens in order to compute the following answer tokens."""

    layers: list[KeyValue]
    mask: Tensor
    """bool [B, T], true where a token may be seen."""
    positions: Tensor
    """int64 [B], the position of the last token."""
    pointer_keys: Tensor
    """Keys of the map's cells [B, pointer_size, R * C], or of the patches [B, m, D]."""

    def rows(self, index: Tensor) -> "PolicyCache":
        """Return a cache whose row b is row `index[b]` of this cache."""
        layers = [(key[index], value[index]) for key, value in self.layers]
        return PolicyCache(layers, self.mask[index], self.positions[index], self.pointer_keys[index])


@dataclass(frozen=True, slots=True)
class GuiPolicyOutput:
    """Logits [B, K, V] at the last K tokens; in `pointer`, the scores of the cells [B, K, R * C] or of the
    patches [B, K, m] from which the logits of coordinates are computed; in `hidden`, the decoder's outputs
    [B, K, D], from which both are computed."""

    logits: Tensor
    pointer: Tensor
    past_key_values: PolicyCache | None = None
    hidden: Tensor | None = None


class Stem(nn.Module):
    """Strided convolutions: maps of 1/4 and 1/8 of the frame for pointing, and the image tokens."""

    def __init__(self, config: GuiPolicyConfig) -> None:
        super().__init__()
        a, b, c, d = config.stem_channels
        self.conv_2 = nn.Conv2d(3, a, 4, 2, 1)
        self.conv_4 = nn.Conv2d(a, b, 3, 2, 1)
        self.conv_8 = nn.Conv2d(b, c, 3, 2, 1)
        self.conv_16 = nn.Conv2d(c, d, 3, 2, 1)
        self.tokens = nn.Conv2d(d, config.hidden_size, (1, 2), (1, 2))
        rows, columns = config.grid
        self.pad = (0, columns * 32 - config.image_width, 0, rows * 16 - config.image_height)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Turn pixels uint8 [B, 3, H, W] into maps of 1/4 and 1/8 size and tokens [B, rows * columns, D]."""
        x = F.pad(pixels.to(self.conv_2.weight.dtype) / 127.5 - 1, self.pad)
        x = x.contiguous(memory_format=torch.channels_last)
        quarter = F.relu(self.conv_4(F.relu(self.conv_2(x))))
        eighth = F.relu(self.conv_8(quarter))
        tokens = self.tokens(F.relu(self.conv_16(eighth)))
        return quarter, eighth, tokens.flatten(2).transpose(1, 2)


class Block(nn.Module):
    """Pre-norm transformer block: attention and a GELU MLP."""

    def __init__(self, config: GuiPolicyConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.heads = config.num_attention_heads
        self.attention_norm = nn.RMSNorm(size, config.rms_norm_eps)
        self.qkv = nn.Linear(size, 3 * size, bias=False)
        self.out = nn.Linear(size, size, bias=False)
        self.mlp_norm = nn.RMSNorm(size, config.rms_norm_eps)
        self.up = nn.Linear(size, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, size)

    def forward(self, x: Tensor, mask: Tensor, past: KeyValue | None) -> tuple[Tensor, KeyValue]:
        """Process new tokens x [B, t, D] that follow the tokens of `past`.

        Returns the processed new tokens [B, t, D], and the keys and values of all tokens.

        mask   bool [B, 1, t, T], true where a new token attends to a token
        """
        batch, length, size = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, length, 3, self.heads, size // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, size))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)))), (key, value)


class ReadingLayers(nn.Module):
    """What words say, for each cell of the map of 1/8: two convolutions, the second along a line of text.

    A cell of that map sees 16 px, two or three letters. The second convolution joins READING_CELLS of them.
    """

    def __init__(self, config: GuiPolicyConfig) -> None:
        super().__init__()
        letters, words, _ = config.reading_channels
        self.letters = nn.Conv2d(config.stem_channels[2], letters, 1)
        self.words = nn.Conv2d(letters, words, (1, READING_CELLS), padding=(0, READING_CELLS // 2))

    def forward(self, eighth: Tensor) -> Tensor:
        """Turn the stem's map of 1/8 of the frame [B, C, H, W] into features of words [B, words, H, W]."""
        return F.relu(self.words(F.relu(self.letters(eighth))))


class Pointer(nn.Module):
    """Scores of the map's cells for each answer position: the token's query times the cells' keys.

    A cell's key is the sum of the stem's features there (two scales), of the decoder's output for the image
    token that covers the cell, and of features of the cell's place.
    """

    def __init__(self, config: GuiPolicyConfig) -> None:
        super().__init__()
        size = config.pointer_size
        _, quarter, eighth, _ = config.stem_channels
        self.grid = config.grid
        self.rows, self.columns = config.y_bins, config.x_bins
        self.query = nn.Linear(config.hidden_size, size)
        self.near = nn.Conv2d(quarter, size, 1)
        self.middle = nn.Conv2d(eighth, size, 1, bias=False)
        self.far = nn.Linear(config.hidden_size, size, bias=False)
        self.place = nn.Linear(4 * PLACE_WAVES, size, bias=False)
        self.reads = bool(config.reading_channels)
        if self.reads:
            self.reading = ReadingLayers(config)
            self.said = nn.Conv2d(config.reading_channels[1], config.reading_channels[2], 1, bias=False)

    def features(self, quarter: Tensor, eighth: Tensor) -> tuple[Tensor, ...]:
        """Return what `keys` takes of each screenshot, from the stem's maps of 1/4 and 1/8 of the frame."""
        middle = self.middle(eighth)
        if self.reads:
            _, said = self.read(eighth)
            middle = middle + F.pad(said, (0, 0, 0, 0, 0, middle.shape[1] - said.shape[1]))
        return self.near(quarter), middle

    def read(self, eighth: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features of words and the embeddings of texts in each cell of the stem's map of 1/8."""
        words = self.reading(eighth)
        return words, self.said(words)

    def keys(self, features: Sequence[Tensor], image_tokens: Tensor) -> Tensor:
        """Return cell keys [B, pointer_size, R * C].

        features       the result of `features` for the screenshot of each row
        image_tokens   [B, rows * columns, D], after the decoder
        """
        near, middle = features
        rows, columns = self.grid
        far = self.far(image_tokens).transpose(1, 2).unflatten(2, (rows, columns))
        near = near + _spread(middle + _spread(far, 2, 4), 2, 2)
        near = near[:, :, : self.rows, : self.columns].flatten(2)
        keys: Tensor = near + self.place(plane_waves(self.rows, self.columns, PLACE_WAVES).to(near)).T
        return keys

    def forward(self, hidden: Tensor, keys: Tensor) -> Tensor:
        """Return cell scores [B, K, R * C] for the decoder's outputs `hidden` [B, K, D]."""
        query: Tensor = self.query(hidden)
        return query @ keys / math.sqrt(query.shape[-1])


class PatchPointer(nn.Module):
    """The pointer head on patches of 8 px.

    The features of a patch are the sum of the stem's features there, of the decoder's output for the image
    token that covers it, and of features of its place. Patches attend to the means of the patches under each
    image token instead of to one another, because attention among all patches took half of the training time
    (docs/decisions/0026).
    """

    def __init__(self, config: GuiPolicyConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.grid = config.grid
        self.rows, self.columns = config.patch_rows, config.patch_columns
        self.near = nn.Conv2d(config.stem_channels[2], size, 1)
        self.far = nn.Linear(size, size, bias=False)
        self.place = nn.Linear(4 * PLACE_WAVES, size, bias=False)
        self.add_module(HEAD_NAME, PointerHead(size))

    @property
    def head(self) -> PointerHead:
        """The pointer head, a submodule under the name HEAD_NAME."""
        found: PointerHead = getattr(self, HEAD_NAME)
        return found

    @property
    def query(self) -> nn.Linear:
        """The last layer that makes the query, in which scores are linear."""
        last = self.head.projection_dec[-1]
        assert isinstance(last, nn.Linear)
        return last

    def features(self, quarter: Tensor, eighth: Tensor) -> tuple[Tensor, ...]:
        """Return what `keys` takes of each screenshot, from the stem's maps of 1/4 and 1/8 of the frame."""
        return (self.near(eighth),)

    def keys(self, features: Sequence[Tensor], image_tokens: Tensor) -> Tensor:
        """Return patch keys [B, m, D].

        features       the result of `features` for the screenshot of each row
        image_tokens   [B, rows * columns, D], after the decoder
        """
        [near] = features
        far = self.far(image_tokens).transpose(1, 2).unflatten(2, self.grid)
        places = self.place(plane_waves(self.rows, self.columns, PLACE_WAVES).to(far))
        known = (near + _spread(far, 2, 4))[:, :, : self.rows, : self.columns]
        known = known + places.T.unflatten(1, (self.rows, self.columns))
        means = F.avg_pool2d(known, (2, 4), ceil_mode=True)
        patches, context = (one.flatten(2).transpose(1, 2) for one in (known, means))
        return self.head.keys(patches, context=context)

    def forward(self, hidden: Tensor, keys: Tensor) -> Tensor:
        """Return patch scores [B, K, m] for the decoder's outputs `hidden` [B, K, D]."""
        return self.head.scores(keys, hidden)


def check_length(prompt_ids: Sequence[int], answer_ids: Sequence[int]) -> None:
    """Check that the model has a position for each token of a recorded prompt and of its answer.

    Raises PromptTooLong.
    """
    steps = {special_ids()[step_token(count)] for count in range(STEP_COUNTERS)}
    start = next((index for index, token in enumerate(prompt_ids) if token in steps), len(prompt_ids))
    text = sum(token != special_ids()[IMAGE] for token in prompt_ids[:start])
    _refuse_long(text, len(prompt_ids) - start)
    _refuse_long_answer(len(answer_ids))


def _refuse_long(text: int, tail: int) -> None:
    """Raise PromptTooLong for a prompt with too many text tokens or tokens from the step counter on."""
    most_tail = MAX_POSITION - TAIL_POSITION
    if text > TAIL_POSITION or tail > most_tail:
        raise PromptTooLong(
            f"expected prompts of at most {TAIL_POSITION} text tokens and {most_tail} tokens from the step "
            f"counter on, got {text} and {tail}; shorten the instruction or the history"
        )


def _refuse_long_answer(tokens: int) -> None:
    """Raise PromptTooLong for an answer with too many tokens."""
    if tokens > MAX_ANSWER:
        raise PromptTooLong(
            f"expected answers of at most {MAX_ANSWER} tokens, got at least {tokens}; shorten the answer"
        )


def _prefix_mask(prefix: Tensor, valid: Tensor) -> Tensor:
    """Return bool [B, 1, T, T]: prefix tokens see the whole prefix, answer tokens all earlier tokens."""
    length = prefix.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=prefix.device).tril()
    seen = causal | (prefix[:, :, None] & prefix[:, None, :])
    padding = ~valid[:, :, None]
    return ((seen & valid[:, None, :]) | padding)[:, None]  # padded rows see all, so softmax stays finite


def _spread(x: Tensor, down: int, across: int) -> Tensor:
    """Repeat each cell `down` times in height and `across` times in width."""
    return x.repeat_interleave(down, 2).repeat_interleave(across, 3)


@cache
@torch.inference_mode(False)  # kept between calls: a tensor made in inference mode could not be trained with
def plane_waves(rows: int, columns: int, waves: int) -> Tensor:
    """Return sine-cosine features [rows * columns, 4 * waves] of cell centres; frequencies are half a wave to
    32 waves per side."""
    frequency = torch.exp(torch.linspace(math.log(0.5), math.log(32), waves)) * 2 * math.pi
    x = (torch.arange(columns) + 0.5)[None, :, None] / columns * frequency
    y = (torch.arange(rows) + 0.5)[:, None, None] / rows * frequency
    x, y = x.expand(rows, -1, -1), y.expand(-1, columns, -1)
    return torch.cat([x.sin(), x.cos(), y.sin(), y.cos()], -1).flatten(0, 1)


@cache
@torch.inference_mode(False)  # kept between calls: a tensor made in inference mode could not be trained with
def text_waves(length: int, size: int) -> Tensor:
    """Return sine-cosine positions [length, size] (Vaswani et al. 2017, section 3.5), scaled like the token
    embeddings."""
    frequency = torch.exp(torch.arange(0, size, 2) * (-math.log(10_000.0) / size))
    angle = torch.arange(length)[:, None] * frequency
    return EMBEDDING_STD * torch.cat([angle.sin(), angle.cos()], -1)


class GuiPolicyModel(nn.Module):
    """The small policy's model, as the module describes it, called like a Qwen2.5-VL model."""

    def __init__(self, config: GuiPolicyConfig) -> None:
        super().__init__()
        self.config = config
        size = config.hidden_size
        self.stem = Stem(config)
        self.embed = nn.Embedding(config.vocab_size, size)
        self.image_place = nn.Linear(4 * PLACE_WAVES, size, bias=False)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(size, config.rms_norm_eps)
        self.has_patches = config.coordinates == "pointer"
        self.head = nn.Linear(size, _head_outputs(config))
        self.pointer = PatchPointer(config) if self.has_patches else Pointer(config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        pixel_values: Tensor | None = None,
        past_key_values: PolicyCache | None = None,
        use_cache: bool = False,
        logits_to_keep: int = 0,
        screen_of: Tensor | None = None,
    ) -> GuiPolicyOutput:
        """Compute the logits of the last `logits_to_keep` tokens (0: of all).

        Args:
            input_ids: int64 [B, T]; with a cache only the new answer tokens.
            attention_mask: [B, T], 0 at padding on either side.
            pixel_values: uint8 [S, 3, H, W]; ignored with a cache.
            screen_of: int64 [B], the screenshot of each row; None: S is B, and each row has its own.
        """
        if past_key_values is None:
            seen = self._screen_features(pixel_values, screen_of)
            return self._first_pass(input_ids, attention_mask, seen, use_cache, logits_to_keep)
        return self._next_tokens(input_ids, past_key_values, logits_to_keep)

    def _screen_features(
        self, pixels: Tensor | None, screen_of: Tensor | None
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Return the image tokens [B, rows * columns, D] and the pointer's features of each row's screen."""
        if pixels is None:
            raise PromptError("expected pixel_values with a prompt, got none: give one screenshot per prompt")
        quarter, eighth, image_tokens = self.stem(pixels)
        features = self.pointer.features(quarter, eighth)
        if screen_of is None:
            return image_tokens, features
        return image_tokens[screen_of], [one[screen_of] for one in features]

    def _first_pass(
        self,
        ids: Tensor,
        attention_mask: Tensor | None,
        seen: tuple[Tensor, Sequence[Tensor]],
        use_cache: bool,
        keep: int,
    ) -> GuiPolicyOutput:
        valid = torch.ones_like(ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        prefix = self._prefix(ids)
        is_image = (ids == self.config.image_token_id) & prefix
        image_tokens, features = seen
        self._check_images(is_image, image_tokens)
        positions = self._positions(ids, is_image, valid, prefix)
        x = self._embed_text(ids, positions)
        image_tokens = image_tokens + self.image_place(
            plane_waves(*self.config.grid, PLACE_WAVES).to(image_tokens)
        )
        x = x.masked_scatter(is_image.unsqueeze(-1), image_tokens.to(x.dtype))
        x, layers = self._decode(x, _prefix_mask(prefix, valid), None)
        final = x[is_image].view_as(image_tokens)
        pointer_keys = self.pointer.keys(features, final)
        cache = PolicyCache(layers, valid, positions.amax(1), pointer_keys) if use_cache else None
        return self._output(x[:, -keep:], ids[:, -keep:], pointer_keys, cache)

    def _next_tokens(self, ids: Tensor, cache: PolicyCache, keep: int) -> GuiPolicyOutput:
        steps = torch.arange(1, ids.shape[1] + 1, device=ids.device)
        positions = cache.positions[:, None] + steps
        past = cache.mask[:, None, None, :].expand(-1, -1, ids.shape[1], -1)
        own = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device).tril()
        mask = torch.cat([past, own.expand(ids.shape[0], 1, -1, -1)], -1)
        x, layers = self._decode(self._embed_text(ids, positions), mask, cache.layers)
        valid = torch.cat([cache.mask, torch.ones_like(ids, dtype=torch.bool)], 1)
        cache = PolicyCache(layers, valid, positions[:, -1], cache.pointer_keys)
        return self._output(x[:, -keep:], ids[:, -keep:], cache.pointer_keys, cache)

    def _embed_text(self, ids: Tensor, positions: Tensor) -> Tensor:
        waves = text_waves(MAX_POSITION + MAX_ANSWER, self.config.hidden_size).to(self.embed.weight)
        _refuse_long_answer(int(positions.max()) + 1 - MAX_POSITION)
        embedded: Tensor = self.embed(ids)
        return embedded + waves[positions]

    def _check_images(self, is_image: Tensor, image_tokens: Tensor) -> None:
        counts = is_image.sum(1)
        if is_image.shape[0] != image_tokens.shape[0] or not bool((counts == image_tokens.shape[1]).all()):
            raise PromptError(
                f"expected {image_tokens.shape[1]} image placeholders in each of {image_tokens.shape[0]}"
                f" prompts, got {counts.tolist()}: encode prompts with this checkpoint's codec"
            )

    def _positions(self, ids: Tensor, is_image: Tensor, valid: Tensor, prefix: Tensor) -> Tensor:
        """Return positions int64 [B, T]: the instruction begins at 0, the step counter at TAIL_POSITION.

        Raises PromptTooLong.
        """
        first = self.config.first_step_token_id
        tail = ((ids >= first) & (ids < first + self.config.step_tokens) & valid).cumsum(1) > 0
        text = (valid & ~is_image & ~tail).cumsum(1) - 1
        after = TAIL_POSITION + (tail & valid).cumsum(1) - 1
        _refuse_long(int(text.max()) + 1, int((tail & valid & prefix).sum(1).max()))
        return torch.where(tail, after, text.clamp(min=0))

    def _prefix(self, ids: Tensor) -> Tensor:
        """Return bool [B, T], true for the prompt, which ends with the first `<answer>` of the row."""
        opened = ids == self.config.answer_token_id
        before: Tensor = opened.cumsum(1) - opened.long()
        return before == 0

    def _decode(
        self, x: Tensor, mask: Tensor, past: Sequence[KeyValue] | None
    ) -> tuple[Tensor, list[KeyValue]]:
        layers: list[KeyValue] = []
        for index, layer in enumerate(self.layers):
            x, key_value = layer(x, mask, None if past is None else past[index])
            layers.append(key_value)
        return self.norm(x), layers

    def _output(
        self, hidden: Tensor, ids: Tensor, pointer_keys: Tensor, cache: PolicyCache | None
    ) -> GuiPolicyOutput:
        scores = self.pointer(hidden, pointer_keys)
        logits = (self._patch_logits if self.has_patches else self._logits)(self.head(hidden), scores, ids)
        return GuiPolicyOutput(logits, scores, cache, hidden)

    def _logits(self, head: Tensor, scores: Tensor, ids: Tensor) -> Tensor:
        """Return the logits [B, K, V] of a policy that writes bins.

        The head has one output for all x tokens and one for all y tokens; the pointer's scores divide each
        output among its tokens: log p(x token) = log p(an x token comes) + log p(column), and
        log p(y token) = log p(a y token comes) + log p(row | column of the x token at this position). If
        there is no x token at this position, rows are summed over all columns.
        """
        config = self.config
        grid = scores.view(*scores.shape[:2], config.y_bins, config.x_bins)
        columns = grid.logsumexp(-2).log_softmax(-1)
        x_index = ids - config.first_x_token_id
        is_x = (x_index >= 0) & (x_index < config.x_bins)
        picked = x_index.clamp(0, config.x_bins - 1)[..., None, None].expand(*grid.shape[:-1], 1)
        cell_rows = grid.gather(-1, picked).squeeze(-1)
        rows = torch.where(is_x[..., None], cell_rows, grid.logsumexp(-1)).log_softmax(-1)
        gate = config.first_x_token_id
        words, x_gate, y_gate, text = head.tensor_split((gate, gate + 1, gate + 2), -1)
        return torch.cat([words, x_gate + columns, y_gate + rows, text], -1)

    def _patch_logits(self, head: Tensor, scores: Tensor, ids: Tensor) -> Tensor:
        """Return the logits [B, K, V]: after `<pointer>` only those of patches, elsewhere only the others."""
        first = self.config.first_patch_token_id
        is_pointer = (ids == self.config.pointer_token_id)[..., None]
        words, text = head.masked_fill(is_pointer, NEVER).tensor_split((first,), -1)
        return torch.cat([words, scores.masked_fill(~is_pointer, NEVER), text], -1)


def _head_outputs(config: GuiPolicyConfig) -> int:
    """Return the number of the head's outputs: tokens, with one output for all x and one for all y bins, and
    none for patches."""
    if config.coordinates == "pointer":
        return int(config.vocab_size - config.patches)
    return int(config.vocab_size - config.x_bins - config.y_bins + 2)


def new_policy(config: GuiPolicyConfig, seed: int) -> GuiPolicyModel:
    """Return an untrained policy.

    Matrices are truncated normal, scaled by their fan-in; biases are zero. The embeddings of coordinate
    tokens start as waves of their position, so that neighbouring bins or patches are similar.
    """
    torch.manual_seed(seed)
    model = GuiPolicyModel(config)
    model.apply(_start_as_transformers)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            gain = 1.0 if isinstance(module, nn.Linear) else math.sqrt(2)
            nn.init.trunc_normal_(module.weight, std=gain / math.sqrt(module.weight[0].numel()))
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=EMBEDDING_STD)
        elif isinstance(module, nn.MultiheadAttention):
            nn.init.trunc_normal_(module.in_proj_weight, std=1 / math.sqrt(config.hidden_size))
    _init_coordinates(model.embed.weight, config)
    return model


def _start_as_transformers(module: nn.Module) -> None:
    """Zero the biases of a module, and draw its matrices.

    transformers did so before `new_policy` drew them again, when the bundled base policies were made. Without
    these draws a seed would make another policy than theirs.
    """
    if isinstance(module, nn.Linear | nn.Conv2d | nn.Embedding):
        nn.init.normal_(module.weight)
    elif isinstance(module, nn.MultiheadAttention):
        nn.init.xavier_uniform_(module.in_proj_weight)
    if isinstance(module, nn.Linear | nn.Conv2d) and module.bias is not None:
        nn.init.zeros_(module.bias)


@torch.no_grad()
def _init_coordinates(table: Tensor, config: GuiPolicyConfig) -> None:
    if config.coordinates == "pointer":
        first = config.first_patch_token_id
        waves = plane_waves(config.patch_rows, config.patch_columns, PLACE_WAVES)
        table[first : first + config.patches, : 4 * PLACE_WAVES] = EMBEDDING_STD * waves
        return
    for first, bins in ((config.first_x_token_id, config.x_bins), (config.first_y_token_id, config.y_bins)):
        waves = plane_waves(1, bins, PLACE_WAVES)[:, : 2 * PLACE_WAVES]
        table[first : first + bins, : 2 * PLACE_WAVES] = EMBEDDING_STD * waves
