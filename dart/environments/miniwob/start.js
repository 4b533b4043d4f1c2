// Runs first in every document of a MiniWoB++ page: starts the episode of the address's ?seed= once
// the page's own load handler has run, and tells dartReady(...) the instruction or the error.
(() => {
  const seed = new URLSearchParams(location.search).get('seed');
  if (seed === null) return;

  // What arrived of the input events that were sent, counted before the page can stop them.
  window.dartReceipts = {pointerdown: 0, pointerup: 0, keydown: 0, keyup: 0, wheel: 0};
  const receive = (event, kind = event.type) => {
    if (!event.isTrusted) return;
    dartReceipts[kind] += kind === 'wheel' ? Math.abs(event.deltaX) + Math.abs(event.deltaY) : 1;
  };
  const first = {capture: true, passive: true};
  for (const kind in dartReceipts) addEventListener(kind, (event) => receive(event), first);
  // Whoever drags a text or a link about releases the pointer to the browser, not to the page.
  addEventListener('pointercancel', (event) => receive(event, 'pointerup'), first);

  const report = (message) => dartReady(JSON.stringify(message));

  const whenReady = () => {
    if (!WOB_TASK_READY) return setTimeout(whenReady, 2);
    const told = core.getUtterance();
    window.dartEpisode = true;
    report({instruction: typeof told === 'string' ? told : told.utterance});
  };

  // Earlier rewards, the wall clock and the click marks: right of the frame, but one can scroll there.
  const hideWhatIsBeside = () => {
    core.hideDisplay();
    document.getElementById('click-canvas').style.display = 'none';
  };

  const start = () => {
    if (core.cover_div === null) return setTimeout(start, 2);
    core.EPISODE_MAX_TIME = 2 ** 30;  // its timer would end an episode while a slow policy thinks
    Math.seedrandom(Number(seed));
    core.setDataMode('train');
    core.startEpisodeReal();
    core.startEpisode = () => {};     // no START cover over the last screen, no second episode
    hideWhatIsBeside();
    scrollTo(0, 0);                   // a dialog that takes the focus may have scrolled there
    whenReady();
  };

  // The style sheets' pictures are fetched when they are first drawn, which the first screenshot can miss.
  const pictureUrls = (sheet) => [...sheet.cssRules].flatMap((rule) =>
    [...rule.cssText.matchAll(/url\("(.*?)"\)/g)].map((found) => new URL(found[1], sheet.href ?? location.href).href));
  const fetched = (url) => Object.assign(new Image(), {src: url}).decode();
  const pictures = async () => {
    const urls = new Set([...document.styleSheets].flatMap(pictureUrls));
    await Promise.allSettled([...urls].map(fetched));
  };

  addEventListener('load', () => pictures().then(start).catch((error) => report({error: String(error)})));
})();
