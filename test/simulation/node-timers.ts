/** The timers of Node itself, which `platform.ts` replaces. */
export const NODE = { setTimeout, setInterval, setImmediate, clearTimeout, clearInterval, clearImmediate };
