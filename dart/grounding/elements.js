// The visible elements of a page that a person could click, with their boxes in pixels of the screen.
// An element counts if a click at the centre of its visible part reaches it and it is not disabled. Of elements
// inside one another the innermost visible one counts; a drawing on a control is part of the control.
((WIDTH, HEIGHT) => {
  const SELECTOR = [
    'button', 'a', 'select', 'textarea', 'input', 'summary', '[role=button]', '[role=tab]', '[role=link]',
    '[role=checkbox]', '[role=radio]', '[onclick]', '.alink', '.tabs li', '.ui-tabs-tab', '.ui-accordion-header',
    'svg rect', 'svg circle', 'svg polygon', 'svg text', '.color', '#area_svg *', '.ui-button',
  ].join(',');
  const INPUTS = { checkbox: 'checkbox', radio: 'radio button', button: 'button', submit: 'button', reset: 'button',
    range: 'slider' };
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
  const joined = (text) => (text ?? '').replace(/\s+/g, ' ').trim();
  const said = (e) => joined(e instanceof SVGElement ? e.textContent : e.innerText);
  const SHAPES = {
    rect: () => 'rectangle', circle: () => 'circle',
    polygon: (e) => (e.points.numberOfItems === 3 ? 'triangle' : ''),
    text: (e) => (/^\d$/.test(said(e)) ? 'digit' : /^\p{L}$/u.test(said(e)) ? 'letter' : ''),
  };
  const NAMES = {
    red: [255, 0, 0], green: [0, 128, 0], blue: [0, 0, 255], yellow: [255, 255, 0], orange: [255, 165, 0],
    purple: [128, 0, 128], pink: [255, 105, 180], cyan: [0, 255, 255], magenta: [255, 0, 255], lime: [0, 255, 0],
    black: [0, 0, 0], grey: [128, 128, 128], white: [255, 255, 255], brown: [139, 69, 19],
  };
  const colourOf = (e) => {
    const style = getComputedStyle(e);
    const found = /rgba?\((\d+), (\d+), (\d+)(?:, ([\d.]+))?\)/.exec(e instanceof SVGElement ? style.fill : style.backgroundColor);
    if (!found || Number(found[4] ?? 1) < 0.9) return '';  // what is behind it shows through
    const rgb = found.slice(1, 4).map(Number);
    const far = (name) => Math.hypot(...NAMES[name].map((value, i) => value - rgb[i]));
    const nearest = Object.keys(NAMES).reduce((a, b) => (far(b) < far(a) ? b : a));
    return far(nearest) < 70 ? nearest : '';
  };
  const DEFAULTS = { button: '', submit: 'Submit', reset: 'Reset' };
  const textOf = (e) => {
    switch (e.tagName) {
      case 'INPUT': return e.type in DEFAULTS ? joined(e.value || DEFAULTS[e.type]) : '';  // others hold what was typed
      case 'SELECT': return e.size > 1 ? '' : joined(e.selectedOptions[0]?.text);
      case 'TEXTAREA': return joined(e.value);
      default: return said(e);
    }
  };
  const labelOf = (e) => joined((e.labels?.[0] ?? e.closest('label'))?.innerText);
  const around = (e) => (e ? [e, ...around(e.parentElement)] : []);
  const opacityOf = (e) => around(e).reduce((product, one) => product * Number(getComputedStyle(one).opacity), 1);
  const isDisabled = (e) => e.matches(':disabled') || e.closest('[aria-disabled=true]') !== null;
  // The part of an element that is on the screen and not cut off by what it is in: left, top, right, bottom.
  const visiblePart = (e) => around(e.parentElement)
    .filter((one) => one !== document.body && one !== document.documentElement && getComputedStyle(one).overflow !== 'visible')
    .map((one) => one.getBoundingClientRect())
    .reduce(([left, top, right, bottom], r) => [
      Math.max(left, r.left), Math.max(top, r.top), Math.min(right, r.right), Math.min(bottom, r.bottom),
    ], ((r) => [Math.max(0, r.left), Math.max(0, r.top), Math.min(WIDTH, r.right), Math.min(HEIGHT, r.bottom)])(e.getBoundingClientRect()));
  const visible = (e) => {
    if (isDisabled(e) || getComputedStyle(e).visibility !== 'visible' || opacityOf(e) < 0.1) return null;
    const [left, top, right, bottom] = visiblePart(e);
    if (right - left < 5 || bottom - top < 5) return null;
    const hit = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
    return hit && (e.contains(hit) || hit.contains(e) && hit.closest('label')) ? [left, top, right, bottom] : null;
  };
  const CONTROL = 'button, a, select, summary, label, .ui-button, [role=button], [role=tab], [role=link]';
  const isPartOfControl = (e) => e instanceof SVGElement && e.parentElement?.closest(CONTROL) !== null;
  const query = document.querySelector('#query');
  const all = [...document.querySelectorAll(SELECTOR)]
    .filter((e) => !query?.contains(e) && !isPartOfControl(e))
    .map((e) => ({ element: e, box: visible(e) })).filter((one) => one.box !== null);
  const inner = all.filter((one) => !all.some((other) => other !== one && one.element.contains(other.element)));
  return inner.map(({ element: e, box }) => ({ box, kind: kindOf(e), text: textOf(e) || labelOf(e),
    shows_text: textOf(e) !== '', colour: colourOf(e),
    shape: e instanceof SVGElement ? SHAPES[e.tagName.toLowerCase()]?.(e) ?? '' : '' }));
})
