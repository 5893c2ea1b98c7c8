import type { Place } from './port.ts';
import { ALLOWED, jointOpinion, listed, type Judge, type Located, type Rule, type TouchedSession } from './rule.ts';
import type { Lists, PolicyRules } from './rules.ts';

/*
 * Devices and sessions. An entry of `devices` is the name of a device, or the type and name of a place (`ssh:build`,
 * `container:ci`, `sandbox:x`, `device:pi`); one of `sessions` is the name of a session. `*` at the end stands for any rest. The
 * most specific entry decides: one without `*`, then the longest; of equals the strictest. `ask` and `deny` entries ignore
 * case. What no entry matches is left to the autonomy rule. Whatever a call touches at a place, it uses the place.
 */

export function devicesRule(judgePlace: Judge<Place>): Rule {
  return {
    name: 'devices',
    judge: ({ places }) => jointOpinion(places.map(judgePlace)),
    saw: ({ places }) => (places.length === 0 ? 'it uses this machine only' : places.map(placeText).join(', ')),
  };
}

export function sessionsRule(judgeSession: Judge<TouchedSession>): Rule {
  return {
    name: 'sessions',
    judge: ({ sessions }) => jointOpinion(sessions.map(judgeSession)),
    saw: ({ sessions }) => (sessions.length === 0 ? 'it uses no sessions' : sessions.map(sessionText).join(', ')),
  };
}

export function placeJudge({ devices = {} }: PolicyRules): Judge<Place> {
  const judge = nameJudge(devices, placeEntry);
  return (place) => judge(placeName(place), placeText(place));
}

export function sessionJudge({ sessions = {} }: PolicyRules): Judge<TouchedSession> {
  const judge = nameJudge(sessions, (text) => text);
  return (touched) => judge(touched.session, sessionText(touched));
}

/** `nameOf`: the whole name that an entry stands for. */
function nameJudge(
  lists: Lists,
  nameOf: (text: string) => string,
): (name: string, what: string) => ReturnType<Judge<object>> {
  const entries = (['deny', 'ask', 'allow'] as const)
    .flatMap((verdict) =>
      (lists[verdict] ?? []).map((text) => {
        const [start = '', rest] = nameOf(text).split('*');
        return { text, verdict, start, isExact: rest === undefined };
      }),
    )
    // Stable, so that of equals the strictest comes first.
    .toSorted((a, b) => Number(b.isExact) - Number(a.isExact) || b.start.length - a.start.length);
  const allowed = lists.allow ?? [];
  const instead = allowed.length === 0 ? 'None are listed as allowed.' : `These are allowed: ${listed(allowed, 10)}.`;
  return (name, what) => {
    const found = entries.find(({ verdict, start, isExact }) => {
      const [given, wanted] = verdict === 'allow' ? [name, start] : [name.toLowerCase(), start.toLowerCase()];
      return isExact ? given === wanted : given.startsWith(wanted);
    });
    if (!found) return undefined;
    const { text, verdict } = found;
    if (verdict === 'allow') return ALLOWED;
    if (verdict === 'ask') return { type: 'ask', reason: `the entry "${text}" asks about ${what}` };
    return { type: 'deny', reason: `the entry "${text}" denies ${what}. ${instead}` };
  };
}

const PLACES: Readonly<Record<Place['type'], string>> = {
  device: 'device',
  ssh: 'ssh host',
  container: 'container',
  sandbox: 'sandbox',
};

/** The name of a place, as entries name it. */
function placeName({ type, name }: Place): string {
  return `${type}:${name}`;
}

/** An entry without a type is a device. */
function placeEntry(text: string): string {
  return Object.hasOwn(PLACES, text.split(':', 1)[0]!) && text.includes(':') ? text : `device:${text}`;
}

/** Whether the text can be an entry: a `*` can only be at its end. */
export function isNameEntry(text: string): boolean {
  return /^[^*\s][^*]*\*?$|^\*$/.test(text) && text === text.trim();
}

/* Words */

/** `the device "pi"` */
export function placeText({ type, name }: Place): string {
  return `the ${PLACES[type]} ${JSON.stringify(name)}`;
}

/** ` on the device "pi"`; empty for this machine. */
export function onText(on: Place | undefined): string {
  return on ? ` on ${placeText(on)}` : '';
}

export function sessionText({ session, on }: TouchedSession): string {
  return `the session ${JSON.stringify(session)}${onText(on)}`;
}

/** ` (3 lines)`; empty if the amount is not known. */
export function amountText(amount: number | undefined, unit: 'line' | 'byte'): string {
  return amount === undefined ? '' : ` (${amount} ${unit}${amount === 1 ? '' : 's'})`;
}

/* What is at a place of which nobody knows the facts */

/** The text alone can deny it. Otherwise people are asked: the lists are about places that are known. */
export function askedIfUnknown<T extends Located>(judge: Judge<T>): Judge<T> {
  return (touched) => {
    const opinion = judge(touched);
    if (!touched.on || touched.folders || opinion?.type === 'deny') return opinion;
    return { type: 'ask', reason: `it is not known what ${placeText(touched.on)} contains` };
  };
}
