/** `node:perf_hooks` without the timer that measures the event loop. */
export function monitorEventLoopDelay(): object {
  return { enable() {}, disable() {}, reset() {}, percentile: () => 0, max: 0 };
}
