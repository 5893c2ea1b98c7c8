import { expects } from './books.ts';
import type { Core } from './core.ts';
import { digestIn } from './drive.ts';
import { eventsBearing, idsNear } from './foreign.ts';
import { demand, type Moment, type Trace } from './trace.ts';

/**
 * I3: an effect settles at most once; duplicate, late and foreign events are no-ops, also an event of one kind that
 * bears the id of another.
 */
export function checkSettling({ step }: Pick<Core, 'step'>, trace: Trace): void {
  const { moments } = trace;
  const issued = new Set<string>();
  for (const moment of moments) {
    const { event, taken, books, effects } = moment;
    demand(
      taken === expects(books.before, event),
      () =>
        `${JSON.stringify(event)} was ${taken ? 'taken' : 'dropped'}, with [${[...books.before.open.keys()].join()}] open`,
    );
    demand(taken || effects.length === 0, () => `${event.type} was dropped, and still issued something`);
    for (const { id } of effects) {
      const reissued = 'effect' in event && event.effect === id;
      demand(reissued || !books.before.open.has(id), () => `${id} was issued while it was open`);
      issued.add(id);
    }
  }

  const ids = new Set([...issued].slice(-12).flatMap((id) => [id, ...idsNear(id)]));
  for (const [place, moment] of moments.entries()) {
    if (!moment.taken) continue;
    const tried = place % 4 === 0 || moment === trace.last ? ids : [...issued].slice(-12);
    for (const id of tried) dropsAllForeign(step, moment, id);
    for (const { event } of moments.slice(Math.max(0, place - 20), place + 1)) dropsUnexpected(step, moment, event);
  }
}

function dropsAllForeign(step: Core['step'], moment: Moment, id: string): void {
  const { after } = moment.books;
  for (const event of eventsBearing(id, after.at, digestIn(after))) dropsUnexpected(step, moment, event);
}

function dropsUnexpected(step: Core['step'], { after, books }: Moment, event: Moment['event']): void {
  if (expects(books.after, event)) return;
  const next = step(after, event);
  demand(next.state === after && next.effects.length === 0, () => {
    return `${JSON.stringify(event)} was taken, with [${[...books.after.open.keys()].join()}] open`;
  });
}
