// Runs first in every document of a MiniWoB++ page: starts the episode for the ?seed= of the address once
// the page's own load handler has run, and passes the instruction or the error to dartReady(...).
// dartRestart(seed) starts another episode in the page.
(() => {
  const seed = new URLSearchParams(location.search).get('seed');
  if (seed === null) return;

  for (const storage of [localStorage, sessionStorage]) storage.clear();  // what an earlier episode left there

  // The first error that no script has caught, for a reset that does not end. A page may have such an error and work.
  addEventListener('error', (event) => { window.dartError ??= event.message; });
  addEventListener('unhandledrejection', (event) => { window.dartError ??= String(event.reason); });

  const report = (message) => dartReady(JSON.stringify(message));

  const instruction = () => {
    const utterance = core.getUtterance();
    return typeof utterance === 'string' ? utterance : utterance.utterance;
  };

  const refused = (error) => report({error: String(error)});
  const later = (step) => setTimeout(() => { try { step(); } catch (error) { refused(error); } }, 2);

  const whenReady = () => {
    if (!WOB_TASK_READY) return later(whenReady);
    window.dartEpisode = true;
    report({instruction: instruction()});
  };

  // Earlier rewards, the clock and the click marks are right of the frame, where a policy could scroll to.
  const hideSurroundings = () => {
    core.hideDisplay();
    document.getElementById('click-canvas').style.display = 'none';
  };

  const drawProblem = (number) => {
    Math.seedrandom(Number(number));
    core.setDataMode('train');
    core.startEpisodeReal();
    hideSurroundings();
    scrollTo(0, 0);                   // a dialog that takes the focus may have scrolled the page
  };

  const start = () => {
    if (core.cover_div === null) return later(start);
    core.EPISODE_MAX_TIME = 2 ** 30;  // else its timer could end the episode of a slow policy
    drawProblem(seed);
    core.startEpisode = () => {};     // no START cover over the last screen, no second episode
    whenReady();
  };

  // Tab and Shift+Tab go on from the last element with the focus. From one that was at the end of the document and is
  // gone, they go to the first and the last element, as in a document that had no focus yet.
  const forgetFocus = () => {
    const end = document.createElement('span');
    end.tabIndex = -1;
    document.documentElement.append(end);
    end.focus({preventScroll: true});
    end.remove();
    getSelection().removeAllRanges();
  };

  // Ctrl+Z would bring back what an earlier episode has typed.
  const undoAll = () => {
    while (document.queryCommandEnabled('undo') && document.execCommand('undo'));
  };

  // Starts the episode of another seed as a load would, and returns its instruction; null if it cannot.
  window.dartRestart = (number) => {
    if (!window.dartEpisode || !WOB_TASK_READY) return null;
    undoAll();
    if (window.jQuery) {
      jQuery(':animated').finish();
      jQuery.fx.stop();
    }
    dartClock.clear();
    dartClock.go();
    forgetFocus();
    drawProblem(number);
    for (const kind in dartInputCounts) dartInputCounts[kind] = 0;
    return WOB_TASK_READY ? instruction() : null;
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

  addEventListener('load', () => pictures().then(start).catch(refused));
})();
