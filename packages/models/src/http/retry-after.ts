/** How long the server asks to be left alone: `retry-after-ms`, or `retry-after` in seconds or as a date. */
export function retryAfterMs(header: (name: string) => string | undefined, now: number): number | undefined {
  const ms = count(header('retry-after-ms'));
  if (ms !== undefined) return ms;
  const told = header('retry-after');
  const seconds = count(told);
  if (seconds !== undefined) return seconds * 1000;
  const until = told !== undefined && /[a-z]{3}/i.test(told) ? Date.parse(told) : Number.NaN;
  return Number.isNaN(until) ? undefined : Math.max(0, until - now);
}

function count(text: string | undefined): number | undefined {
  return text !== undefined && /^\s*\d+(\.\d+)?\s*$/.test(text) ? Number(text) : undefined;
}
