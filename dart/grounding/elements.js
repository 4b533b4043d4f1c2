// The visible elements of a page that a person could click, with their boxes in pixels of the screen.
// An element counts if a click at the centre of its visible part reaches it.
((WIDTH, HEIGHT) => {
  const SELECTOR = [
    'button', 'a', 'select', 'textarea', 'input', 'summary', '[role=button]', '[role=tab]', '[role=link]',
    '[role=checkbox]', '[role=radio]', '[onclick]', '.alink', '.tabs li', '.ui-tabs-tab', '.ui-accordion-header',
    'svg rect', 'svg circle', 'svg polygon', 'svg text', '.color', '#area_svg *', '.ui-button',
  ].join(',');
  const INPUTS = { checkbox: 'checkbox', radio: 'radio button', button: 'button', submit: 'button', range: 'slider' };
  const kindOf = (e) => {
    const tag = e.tagName.toLowerCase();
    if (tag === 'input') return INPUTS[e.type] ?? 'text field';
    if (tag === 'textarea') return 'text area';
    if (tag === 'select') return 'list';
    if (tag === 'button' || e.matches('.ui-button, [role=button]')) return 'button';
    if (e.closest('[role=tab], .ui-tabs-tab, .tabs li')) return 'tab';
    if (tag === 'a' || e.matches('.alink, [role=link]')) return 'link';
    if (e instanceof SVGElement) return 'shape';
    return 'box';
  };
  const SHAPES = {
    rect: () => 'rectangle', circle: () => 'circle',
    polygon: (e) => (e.points.numberOfItems === 3 ? 'triangle' : ''),
    text: (e) => (/^\d$/.test(e.textContent) ? 'digit' : 'letter'),
  };
  const NAMES = {
    red: [255, 0, 0], green: [0, 128, 0], blue: [0, 0, 255], yellow: [255, 255, 0], orange: [255, 165, 0],
    purple: [128, 0, 128], pink: [255, 105, 180], cyan: [0, 255, 255], magenta: [255, 0, 255], lime: [0, 255, 0],
    black: [0, 0, 0], grey: [128, 128, 128], white: [255, 255, 255], brown: [139, 69, 19],
  };
  const colourOf = (e) => {
    const style = getComputedStyle(e);
    const found = /rgba?\((\d+), (\d+), (\d+)(?:, ([\d.]+))?\)/.exec(e instanceof SVGElement ? style.fill : style.backgroundColor);
    if (!found || found[4] === '0') return '';
    const rgb = found.slice(1, 4).map(Number);
    const far = (name) => Math.hypot(...NAMES[name].map((value, i) => value - rgb[i]));
    const nearest = Object.keys(NAMES).reduce((a, b) => (far(b) < far(a) ? b : a));
    return far(nearest) < 70 ? nearest : '';
  };
  const SAYS_VALUE = ['button', 'submit']; // other inputs hold what was typed or a value that is not shown
  const textOf = (e) => ((e.tagName === 'INPUT' ? SAYS_VALUE.includes(e.type) && e.value
    : e.value || e.innerText || e.textContent) || '').replace(/\s+/g, ' ').trim();
  const labelOf = (e) => {
    const label = e.labels?.[0] ?? e.closest('label');
    return label ? label.innerText.replace(/\s+/g, ' ').trim() : '';
  };
  const visible = (e) => {
    const style = getComputedStyle(e);
    if (style.visibility !== 'visible' || Number(style.opacity) < 0.1) return null;
    const r = e.getBoundingClientRect();
    const [left, top] = [Math.max(0, r.left), Math.max(0, r.top)];
    const [right, bottom] = [Math.min(WIDTH, r.right), Math.min(HEIGHT, r.bottom)];
    if (right - left < 5 || bottom - top < 5) return null;
    const hit = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
    return hit && (e.contains(hit) || hit.contains(e) && hit.closest('label')) ? [left, top, right, bottom] : null;
  };
  const query = document.querySelector('#query');
  const all = [...new Set(document.querySelectorAll(SELECTOR))].filter((e) => !query?.contains(e));
  const inner = all.filter((e) => !all.some((other) => other !== e && e.contains(other)));
  return inner.map((e) => ({ box: visible(e), kind: kindOf(e), text: textOf(e) || labelOf(e),
    shows_text: textOf(e) !== '', colour: colourOf(e),
    shape: e instanceof SVGElement ? SHAPES[e.tagName.toLowerCase()]?.(e) ?? '' : '' })).filter((one) => one.box !== null);
})
