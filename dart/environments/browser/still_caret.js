// Stops the caret of text fields from blinking, so that only input and the page itself change the screen.
(() => {
  const style = new CSSStyleSheet();
  style.replaceSync(':root { caret-animation: manual }');
  document.adoptedStyleSheets.push(style);
})();
