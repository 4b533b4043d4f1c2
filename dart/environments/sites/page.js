// Runs first in every document of a site: notes the first element that is used, for the machine to act on.
// Nothing that is clicked leads the browser away: the environment shows the next page with dartShow.
(() => {
  let used = null;

  const use = (element, texts) => { used ??= {element: Number(element.dataset.element), texts}; };
  const textsOf = (form) => [...form.querySelectorAll('input')].map((input) => [input.name, input.value]);

  addEventListener('click', (event) => {
    const clicked = event.target.closest?.('a, button');
    if (clicked?.type !== 'submit') event.preventDefault();
    if (clicked?.dataset.element !== undefined) use(clicked, []);
  });
  addEventListener('submit', (event) => {
    event.preventDefault();
    const texts = textsOf(event.target);
    if (texts.every(([_, text]) => text.trim() !== '')) use(event.target, texts);
  });
  addEventListener('dragstart', (event) => event.preventDefault());

  // Returns the first use since the last call, or null, the input events that arrived, and the box of the newest click.
  window.dartTakeUse = () => {
    const taken = used;
    used = null;
    return [taken, dartInputCounts, window.dartClicked ?? null];
  };
  window.dartShow = (body) => {
    document.body.innerHTML = body;
    scrollTo(0, 0);
  };
  addEventListener('load', () => document.fonts.ready.then(() => dartReady('')));
})();
