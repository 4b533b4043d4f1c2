// Runs first in every document: replaces timers and clocks so that dartClock.stop() halts them and
// dartClock.go() resumes them with the remaining time of every timer. Freezing a page alone is not enough:
// its timers run out while it is frozen and fire the moment it wakes. dartClock.clear() forgets all timers, for a
// page that plays another episode.
(() => {
  const nativeNow = performance.now.bind(performance);
  const [setNative, clearNative, nextFrame] = [setTimeout, clearTimeout, requestAnimationFrame];
  let stoppedMs = null;    // when the clock was stopped, on the native clock; null while it runs
  let standstillMs = 0;    // total time for which the clock was stopped
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
    clear() {
      for (const timer of timers.values()) clearNative(timer.native);
      timers.clear();
    },
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
