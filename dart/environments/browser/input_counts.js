// Counts the input events that arrive in dartInputCounts, before the page can stop them.
(() => {
  window.dartInputCounts = {pointerdown: 0, pointerup: 0, keydown: 0, keyup: 0, wheel: 0};
  const count = (event, kind = event.type) => {
    if (!event.isTrusted) return;
    dartInputCounts[kind] += kind === 'wheel' ? Math.abs(event.deltaX) + Math.abs(event.deltaY) : 1;
  };
  const first = {capture: true, passive: true};
  for (const kind in dartInputCounts) addEventListener(kind, (event) => count(event), first);
  // When a text or a link is dragged, the browser takes the release of the pointer instead of the page.
  addEventListener('pointercancel', (event) => count(event, 'pointerup'), first);
})();
