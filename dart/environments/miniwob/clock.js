// Runs first in every document: timers and clocks that dartClock.stop() halts and dartClock.go() sets going
// again, with what was left of every timer. Freezing a page alone does not do that: its timers run out
// meanwhile and fire the moment it wakes.
(() => {
  const nativeNow = performance.now.bind(performance);
  const [setNative, clearNative, nextFrame] = [setTimeout, clearTimeout, requestAnimationFrame];
  let stoppedMs = null;    // when it was stopped, on the native clock; null while it goes
  let standstillMs = 0;    // how long it has stood still so far
  const now = () => (stoppedMs ?? nativeNow()) - standstillMs;

  const timers = new Map();
  let lastId = 0;

  const arm = (timer, delayMs) => {
    timer.dueMs = now() + delayMs;
    if (stoppedMs === null) timer.native = setNative(() => fire(timer), delayMs);
  };
  const fire = (timer) => {
    if (timer.repeats) arm(timer, timer.delayMs);
    else timers.delete(timer.id);
    timer.run();
  };
  const timerSetter = (repeats) => (handler, delay, ...args) => {
    const run = typeof handler === 'function' ? () => handler.apply(window, args) : () => (0, eval)(handler);
    const timer = {id: ++lastId, run, repeats, delayMs: Math.max(0, Math.trunc(delay) || 0)};
    timers.set(timer.id, timer);
    arm(timer, timer.delayMs);
    return timer.id;
  };
  window.setTimeout = timerSetter(false);
  window.setInterval = timerSetter(true);
  window.clearTimeout = window.clearInterval = (id) => {
    clearNative(timers.get(id)?.native);
    timers.delete(id);
  };

  performance.now = now;
  window.requestAnimationFrame = (draw) => nextFrame((atMs) => draw(atMs - standstillMs));
  Date.now = () => Math.floor(performance.timeOrigin + now());
  window.Date = new Proxy(Date, {
    construct: (date, args, asked) => Reflect.construct(date, args.length ? args : [Date.now()], asked),
    apply: () => new Date().toString(),
  });
  Date.prototype.constructor = Date;

  window.dartClock = {
    stop() {
      stoppedMs ??= nativeNow();
      for (const timer of timers.values()) clearNative(timer.native);
    },
    go() {
      if (stoppedMs === null) return;
      standstillMs += nativeNow() - stoppedMs;
      stoppedMs = null;
      const inOrder = [...timers.values()].sort((one, other) => one.dueMs - other.dueMs);
      for (const timer of inOrder) arm(timer, Math.max(0, Math.ceil(timer.dueMs - now())));
    },
  };
})();
