"""Grounding by attention over image patches: heads, labels, loss, sampled patches and regions.

One token `<pointer>` stands for a position. Its last hidden state is a query; the patches of the newest
screenshot, as they enter the language model, give the keys; the softmax over patches is the answer
(GUI-Actor, Wu et al. 2025, arXiv 2506.03143). A second head has no weights of its own and merges the
attention of the language model itself (GUI-AIMA, arXiv 2511.00810).

What other packages use:

- `patches`: `PatchGrid`, and the labels of a box (`patch_labels`). Pure, NumPy only.
- `regions`: `Region` and `decode_regions`, from an attention map to centres with scores. Pure, NumPy only.
- `head`: `PointerHead`, with the names of GUI-Actor's published weights (`HEAD_NAME`), and `pointer_kl`, its
  loss. Imports torch.

Patches are numbered row by row from the top left; a patch index is `row * columns + column` everywhere.
Points and centres are fractions of the screen's width and height in [0, 1] until an environment needs
pixels. Training uses sampled patches and evaluation uses the best region: the weighted centre of a region is
no sample, so it has no log-prob.
"""
