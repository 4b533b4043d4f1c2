// Runs first in every document of a MiniWoB++ page: starts the episode for the ?seed= of the address once
// the page's own load handler has run, and passes the instruction or the error to dartReady(...).
(() => {
  const seed = new URLSearchParams(location.search).get('seed');
  if (seed === null) return;

  // Counts the input events that arrive, before the page can stop them.
  window.dartInputCounts = {pointerdown: 0, pointerup: 0, keydown: 0, keyup: 0, wheel: 0};
  const count = (event, kind = event.type) => {
    if (!event.isTrusted) return;
    dartInputCounts[kind] += kind === 'wheel' ? Math.abs(event.deltaX) + Math.abs(event.deltaY) : 1;
  };
  const first = {capture: true, passive: true};
  for (const kind in dartInputCounts) addEventListener(kind, (event) => count(event), first);
  // When a text or a link is dragged, the browser takes the release of the pointer instead of the page.
  addEventListener('pointercancel', (event) => count(event, 'pointerup'), first);

  const report = (message) => dartReady(JSON.stringify(message));

  const whenReady = () => {
    if (!WOB_TASK_READY) return setTimeout(whenReady, 2);
    const utterance = core.getUtterance();
    window.dartEpisode = true;
    report({instruction: typeof utterance === 'string' ? utterance : utterance.utterance});
  };

  // Earlier rewards, the clock and the click marks are right of the frame, where a policy could scroll to.
  const hideSurroundings = () => {
    core.hideDisplay();
    document.getElementById('click-canvas').style.display = 'none';
  };

  const start = () => {
    if (core.cover_div === null) return setTimeout(start, 2);
    core.EPISODE_MAX_TIME = 2 ** 30;  // else its timer could end the episode of a slow policy
    Math.seedrandom(Number(seed));
    core.setDataMode('train');
    core.startEpisodeReal();
    core.startEpisode = () => {};     // no START cover over the last screen, no second episode
    hideSurroundings();
    scrollTo(0, 0);                   // a dialog that takes the focus may have scrolled the page
    whenReady();
  };

  // Browsers fetch the pictures of style sheets when they are first drawn, which may be too late for the
  // first screenshot, so they are fetched here.
  const pictureUrls = (sheet) => [...sheet.cssRules].flatMap((rule) =>
    [...rule.cssText.matchAll(/url\("(.*?)"\)/g)].map((found) => new URL(found[1], sheet.href ?? location.href).href));
  const fetched = (url) => Object.assign(new Image(), {src: url}).decode();
  const pictures = async () => {
    const urls = new Set([...document.styleSheets].flatMap(pictureUrls));
    await Promise.allSettled([...urls].map(fetched));
  };

  addEventListener('load', () => pictures().then(start).catch((error) => report({error: String(error)})));
})();
