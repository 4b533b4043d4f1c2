// Counts the input events that arrive in dartInputCounts, before the page can stop them. dartClicked is the box of
// the element that the newest press of the pointer hit: [left, top, right, bottom] in pixels of the screen. That
// element is the control there, or else the innermost element if it has no elements inside; any other is background,
// whose box is null. So is that of an element in whose box places differ: one that shows or sets a value by the place,
// and a drawn shape that does not fill its box.
(() => {
  window.dartInputCounts = {pointerdown: 0, pointerup: 0, keydown: 0, keyup: 0, wheel: 0};
  const count = (event, kind = event.type) => {
    if (!event.isTrusted) return;
    dartInputCounts[kind] += kind === 'wheel' ? Math.abs(event.deltaX) + Math.abs(event.deltaY) : 1;
  };
  const CONTROLS = 'a, button, input, label, option, select, summary, textarea, [role=button], [role=checkbox], '
    + '[role=link], [role=menuitem], [role=option], [role=radio], [role=tab]';
  const OF_PLACES = 'canvas, svg, path, line, polyline, polygon, circle, ellipse, input[type=range], img[usemap], '
    + 'area, video, audio, iframe';
  const boxOf = (hit) => {
    const element = hit.closest?.(CONTROLS) ?? (hit.childElementCount === 0 ? hit : null);
    if (element === null || element.matches?.(OF_PLACES)) return null;
    const {left, top, right, bottom} = element.getBoundingClientRect();
    return [left, top, right, bottom];
  };
  const first = {capture: true, passive: true};
  for (const kind in dartInputCounts) addEventListener(kind, (event) => count(event), first);
  addEventListener('pointerdown', (event) => { if (event.isTrusted) window.dartClicked = boxOf(event.target); }, first);
  // When a text or a link is dragged, the browser takes the release of the pointer instead of the page.
  addEventListener('pointercancel', (event) => count(event, 'pointerup'), first);
})();
