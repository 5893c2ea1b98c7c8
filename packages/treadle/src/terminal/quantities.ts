import type { Usage } from '@treadle/core';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** A duration: `3 ms`, `1.2 s`, `3 min 5 s`, `2 h 10 min`, `4 d 3 h`. */
export function durationText(ms: number): string {
  if (ms < 100) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 9_950) return `${(ms / SECOND).toFixed(1)} s`;
  const seconds = Math.round(ms / SECOND) * SECOND;
  if (seconds < MINUTE) return `${seconds / SECOND} s`;
  if (seconds < HOUR) return twoUnits(seconds, [MINUTE, 'min'], [SECOND, 's']);
  const minutes = Math.round(ms / MINUTE) * MINUTE;
  return minutes < DAY ? twoUnits(minutes, [HOUR, 'h'], [MINUTE, 'min']) : twoUnits(minutes, [DAY, 'd'], [HOUR, 'h']);
}

type Unit = readonly [ms: number, name: string];

function twoUnits(ms: number, [large, name]: Unit, [small, other]: Unit): string {
  const rest = Math.floor((ms % large) / small);
  return `${Math.floor(ms / large)} ${name}${rest === 0 ? '' : ` ${rest} ${other}`}`;
}

/** An age in its largest unit: `5 s`, `12 min`, `3 h`, `40 d`. A negative age, from a clock that was set back, is `0 s`. */
export function ageText(ms: number): string {
  const units: readonly Unit[] = [
    [DAY, 'd'],
    [HOUR, 'h'],
    [MINUTE, 'min'],
  ];
  const [size, name] = units.find(([unit]) => ms >= unit) ?? [SECOND, 's'];
  return `${Math.max(0, Math.floor(ms / size))} ${name}`;
}

/** The milliseconds of `30d`, `12h` or `45m`; undefined for other texts. */
export function parseAge(text: string): number | undefined {
  const [, count, unit] = /^(\d{1,6})\s*([smhdw])$/.exec(text.trim()) ?? [];
  return count === undefined ? undefined : Number(count) * AGES[unit as keyof typeof AGES];
}

const AGES = { s: SECOND, m: MINUTE, h: HOUR, d: DAY, w: 7 * DAY } as const;

/** Local time: `2026-11-15 05:33:12`. */
export function timestampText(at: number): string {
  const date = new Date(at);
  const two = (value: number): string => String(value).padStart(2, '0');
  const day = [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join('-');
  return `${day} ${[date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(':')}`;
}

/** `1,200 in (800 cached), 50 out (20 reasoning), $0.0031`. Unknown parts are left out. */
export function usageText({ inputTokens, outputTokens, cachedTokens, reasoningTokens, cost }: Usage): string {
  const part = (tokens: number | undefined, name: string): string => (tokens ? ` (${count(tokens)} ${name})` : '');
  return [
    `${count(inputTokens)} in${part(cachedTokens, 'cached')}`,
    `${count(outputTokens)} out${part(reasoningTokens, 'reasoning')}`,
    ...(cost ? [costText(cost)] : []),
  ].join(', ');
}

function costText(cost: number): string {
  return `$${cost >= 1 ? cost.toFixed(2) : cost.toFixed(4)}`;
}

function count(tokens: number): string {
  return tokens.toLocaleString('en');
}

/** `512 B`, `1.2 kB`, `32 kB`, `1.5 MB`. */
export function sizeText(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB'];
  let [value, unit] = [bytes, 0];
  for (; value >= 999.5 && unit < units.length - 1; unit++) value /= 1_000;
  return `${value >= 9.95 || unit === 0 ? Math.round(value) : value.toFixed(1).replace('.0', '')} ${units[unit]}`;
}

/** `1 turn`, `2 turns`, `1,000 entries`. */
export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString('en')} ${count === 1 ? one : many}`;
}
