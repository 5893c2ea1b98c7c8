import type { Amounts } from '@treadle/core';
import { durationText } from '@treadle/core/describe';

export { durationText, plural, usageText } from '@treadle/core/describe';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

type Unit = readonly [ms: number, name: string];

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

/** `512 B`, `1.2 kB`, `32 kB`, `1.5 MB`. */
export function sizeText(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB'];
  let [value, unit] = [bytes, 0];
  for (; value >= 999.5 && unit < units.length - 1; unit++) value /= 1_000;
  return `${value >= 9.95 || unit === 0 ? Math.round(value) : value.toFixed(1).replace('.0', '')} ${units[unit]}`;
}

/** An amount of a budget, and its limit: `12 of 100 calls`, `1.5 s`. */
export function amountText(kind: keyof Amounts, amount: number, limit?: number): string {
  const text = (value: number): string =>
    kind === 'durationMs' ? durationText(value) : value.toLocaleString('en', { maximumFractionDigits: 4 });
  const amounts = limit === undefined ? text(amount) : `${text(amount)} of ${text(limit)}`;
  return kind === 'durationMs' ? amounts : `${amounts} ${kind}`;
}
