// Describes the page for exploration: its address, its nodes, and the elements that can be seen.
// It also keeps forms from sending anything to an address that is not local, whoever submits them.
(() => {
  const LOCAL = ['localhost', '127.0.0.1', '[::1]', ''];
  const isLocal = (address) => {
    const url = new URL(address, location.href);
    return ['http:', 'https:', 'file:', 'about:'].includes(url.protocol) 
      && (LOCAL.includes(url.hostname) || url.hostname.endsWith('.localhost'));
  };
  // Where a form sends to. A field named `action` hides the form's own property, and the property `formAction` of
  // a button without that attribute is the address of the page, so the attributes are read.
  const attribute = (e, name) => e ? Element.prototype.getAttribute.call(e, name) : null;
  const sendsTo = (form, button) => {
    const given = attribute(button, 'formaction') ?? attribute(form, 'action');
    try {
      return new URL(given || location.href, document.baseURI).href;
    } catch {
      return 'about:invalid';  // the browser sends nothing either
    }
  };
  if (!window.dartLocalForms) {
    window.dartLocalForms = true;
    const send = HTMLFormElement.prototype.submit;
    HTMLFormElement.prototype.submit = function () { if (isLocal(sendsTo(this))) send.call(this); };
    addEventListener('submit', (event) => {
      if (!isLocal(sendsTo(event.target, event.submitter))) { event.preventDefault(); event.stopImmediatePropagation(); }
    }, true);
  }

  const MOST_NODES = 3000, MOST_TEXT = 60;
  const [width, height] = [innerWidth, innerHeight];
  const classOf = (e) => typeof e.className === 'string' ? e.className.trim().split(/\s+/).sort().join('.') : '';
  const own = (e) => [...e.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data.trim()).join(' ').trim();
  // By whole characters. The first cut, by UTF-16 units, leaves enough of them and keeps a long text cheap.
  const shorten = (text) => [...text.replace(/\s+/g, ' ').trim().slice(0, 2 * MOST_TEXT)]
    .slice(0, MOST_TEXT).join('').toWellFormed();
  const isSeen = (e, r) => {
    if (r.width < 1 || r.height < 1) return false;
    const style = getComputedStyle(e);
    return style.visibility !== 'hidden' && style.display !== 'none' && Number(style.opacity) > 0.05;
  };
  const onScreen = (r) => r.left < width && r.top < height && r.right > 0 && r.bottom > 0;

  // Nodes, without scripts and what is not drawn: depth, tag, class, place, text and state.
  const nodes = [];
  const walk = (e, depth) => {
    if (nodes.length >= MOST_NODES || ['SCRIPT', 'STYLE', 'NOSCRIPT', 'TEMPLATE'].includes(e.tagName)) return;
    const r = e.getBoundingClientRect();
    if (isSeen(e, r) && onScreen(r)) {
      const state = [e.value, e.checked, e.selectedIndex].map((s) => s === undefined ? '' : String(s)).join('~');
      nodes.push([depth, e.tagName.toLowerCase(), classOf(e),
        [r.left, r.top, r.width, r.height].map(Math.round), shorten(own(e)), shorten(state)]);
    }
    for (const child of e.children) walk(child, depth + 1);
  };
  walk(document.body, 0);

  const ROLES = {A: 'link', BUTTON: 'button', SELECT: 'combobox', TEXTAREA: 'textbox', SUMMARY: 'button',
    IMG: 'img', H1: 'heading', H2: 'heading', H3: 'heading', LABEL: 'label'};
  const INPUTS = {checkbox: 'checkbox', radio: 'radio', button: 'button', submit: 'button', reset: 'button',
    image: 'button', range: 'slider', file: 'file', color: 'color', hidden: 'hidden'};
  const roleOf = (e) => e.getAttribute('role')
    ?? (e.tagName === 'INPUT' ? INPUTS[e.type] ?? 'textbox' : ROLES[e.tagName] ?? e.tagName.toLowerCase());
  const labelOf = (e) => e.getAttribute('aria-label') || e.getAttribute('title') || e.getAttribute('alt')
    || e.placeholder || (e.labels?.[0]?.innerText ?? '') || e.getAttribute('data-label') || '';
  const handles = (e) => e.onclick !== null || e.hasAttribute('onclick') || e.hasAttribute('tabindex')
    || (window.jQuery?._data?.(e, 'events')?.click ?? null) !== null;
  const isPointer = (e) => getComputedStyle(e).cursor === 'pointer'
    && (e.parentElement === null || getComputedStyle(e.parentElement).cursor !== 'pointer');
  const NATIVE = 'a[href], button, input, select, textarea, summary, label, [role=button], [role=tab], [role=menuitem],'
    + '[role=link], [role=checkbox], [role=option], [contenteditable=true]';

  const elements = [];
  for (const e of document.querySelectorAll('body *')) {
    const acts = e.matches(NATIVE) || handles(e) || isPointer(e);
    const reads = /^H[1-3]$/.test(e.tagName);
    if (!acts && !reads) continue;
    const rects = [...e.getClientRects()];
    if (!rects.length) continue;
    const r = rects.reduce((a, b) => b.width * b.height > a.width * a.height ? b : a);
    if (!isSeen(e, r)) continue;
    const [x0, y0] = [Math.max(0, Math.round(r.left)), Math.max(0, Math.round(r.top))];
    const [x1, y1] = [Math.min(width, Math.round(r.right)), Math.min(height, Math.round(r.bottom))];
    if (x1 - x0 < 3 || y1 - y0 < 3) continue;
    const hit = document.elementFromPoint(Math.floor((x0 + x1 - 1) / 2), Math.floor((y0 + y1 - 1) / 2));
    const shown = shorten(e.tagName === 'INPUT' ? (roleOf(e) === 'button' ? e.value : '') : e.innerText ?? '');
    const form = e.form ?? e.closest('form');
    const sends = form && (e.type === 'submit' || e.type === 'image' || roleOf(e) === 'textbox' || e.tagName === 'BUTTON');
    elements.push({
      role: shorten(roleOf(e)), text: shown || shorten(labelOf(e)), has_text: shown !== '', box: [x0, y0, x1, y1],
      acts: acts, is_enabled: !e.disabled && e.getAttribute('aria-disabled') !== 'true' && !e.readOnly,
      is_clear: hit !== null && (e === hit || e.contains(hit) || (hit.contains(e) && hit === e.closest('label'))),
      is_field: roleOf(e) === 'textbox' || e.isContentEditable === true,  // SVG elements lack it
      leads_to: e.tagName === 'A' && e.href ? e.href : '', opens: e.target === '_blank' || e.hasAttribute('download'),
      sends_to: sends ? sendsTo(form, e) : '',
    });
  }
  const page = document.scrollingElement;
  return {  // an element named `title` hides the text of the title
    url: location.href, title: String(document.title), width, height, nodes, elements,
    is_above: page.scrollTop > 1, is_below: page.scrollTop + page.clientHeight < page.scrollHeight - 1,
  };
})()
