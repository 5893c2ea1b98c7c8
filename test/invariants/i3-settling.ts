import { shouldApply } from './observed.ts';
import type { Core } from './core.ts';
import { digestIn } from './drive.ts';
import { eventsWithId, idsNear } from './foreign-events.ts';
import { ensure, type Moment, type Trace } from './trace.ts';

/**
 * I3: an effect settles at most once; duplicate, late and foreign events are no-ops, also an event that has the id
 * of an effect of another kind.
 */
export function checkSettling({ step }: Pick<Core, 'step'>, trace: Trace): void {
  const { moments } = trace;
  const issued = new Set<string>();
  for (const moment of moments) {
    const { event, applied, observed, effects } = moment;
    ensure(
      applied === shouldApply(observed.before, event),
      () =>
        `${JSON.stringify(event)} was ${applied ? 'applied' : 'ignored'} with [${[...observed.before.open.keys()].join()}] outstanding`,
    );
    ensure(applied || effects.length === 0, () => `${event.type} was ignored and still issued an effect`);
    for (const { id } of effects) {
      const reissued = 'effect' in event && event.effect === id;
      ensure(reissued || !observed.before.open.has(id), () => `${id} was issued while it was outstanding`);
      issued.add(id);
    }
  }

  const ids = new Set([...issued].slice(-12).flatMap((id) => [id, ...idsNear(id)]));
  for (const [place, moment] of moments.entries()) {
    if (!moment.applied) continue;
    const tried = place % 4 === 0 || moment === trace.last ? ids : [...issued].slice(-12);
    for (const id of tried) ignoresForeignEvents(step, moment, id);
    for (const { event } of moments.slice(Math.max(0, place - 20), place + 1))
      ignoresUnexpectedEvent(step, moment, event);
  }
}

function ignoresForeignEvents(step: Core['step'], moment: Moment, id: string): void {
  const { after } = moment.observed;
  for (const event of eventsWithId(id, after.at, digestIn(after))) ignoresUnexpectedEvent(step, moment, event);
}

function ignoresUnexpectedEvent(step: Core['step'], { after, observed }: Moment, event: Moment['event']): void {
  if (shouldApply(observed.after, event)) return;
  const next = step(after, event);
  ensure(next.state === after && next.effects.length === 0, () => {
    return `${JSON.stringify(event)} was applied with [${[...observed.after.open.keys()].join()}] outstanding`;
  });
}
