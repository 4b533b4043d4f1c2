// The words that are visible on a page: what each says, its box, and where each of its characters ends, in pixels
// of the screenshot. A word that is broken into lines, cut off or covered is left out, and so is what was typed.
((WIDTH, HEIGHT) => {
  const boxOf = (node, begin, end) => {
    const range = document.createRange();
    range.setStart(node, begin);
    range.setEnd(node, end);
    const rects = range.getClientRects();
    return rects.length === 1 ? rects[0] : null;
  };
  const isShown = (parent, box) => {
    if (box.width < 2 || box.left < 0 || box.top < 0 || box.right > WIDTH || box.bottom > HEIGHT) return false;
    const hit = document.elementFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2);
    return hit !== null && hit.contains(parent);
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const parent = node.parentElement;
    if (getComputedStyle(parent).visibility !== 'visible') continue;
    for (const word of node.data.matchAll(/\S+/g)) {
      const box = boxOf(node, word.index, word.index + word[0].length);
      if (box === null || !isShown(parent, box)) continue;
      const text = word[0].toWellFormed();
      let end = word.index;
      const ends = [...text].map((character) => boxOf(node, word.index, end += character.length)?.right ?? box.right);
      found.push({ text, box: [box.left, box.top, box.right, box.bottom], ends });
    }
  }
  return found;
})
