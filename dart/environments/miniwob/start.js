// Runs first in every document of a MiniWoB++ page: starts the episode for the ?seed= of the address once
// the page's own load handler has run, and passes the instruction or the error to dartReady(...).
(() => {
  const seed = new URLSearchParams(location.search).get('seed');
  if (seed === null) return;

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
