import type { Core } from './core.ts';
import { drive } from './drive.ts';
import { ensure, messagesOf, outcomeOf, same, type Trace } from './trace.ts';
import type { Move, World } from './world.ts';

/**
 * I9: the order in which parallel effects settle changes neither the history nor the outcome. Returns false if there was
 * only one order, so that nothing was compared.
 */
export function checkOrderFree(core: Pick<Core, 'NEW' | 'step'>, world: World, alternative: readonly Move[]): boolean {
  const one = drive(core, world, { calm: true });
  if (!one.hadChoice) return false;
  const other = drive(core, world, { calm: true, reversed: true, moves: alternative });
  const orders = `[${orderOf(one)}] and [${orderOf(other)}]`;
  ensure(
    same(messagesOf(one.last.after), messagesOf(other.last.after)),
    () => `the histories differ by order: ${orders}`,
  );
  ensure(same(outcomeOf(one.last.after), outcomeOf(other.last.after)), () => `the outcomes differ by order: ${orders}`);
  const [seen, also] = [one, other].map(({ last: { after } }) => [after.exposure?.outside, after.exposure?.private]);
  ensure(same(seen, also), () => `what the run has seen differs by order: ${orders}`);
  const [open, alike] = [one, other].map(({ last }) => [...last.observed.after.open.keys()].sort());
  ensure(same(open, alike), () => `the outstanding effects differ by order: ${orders}`);
  return orderOf(one) !== orderOf(other);
}

function orderOf({ moments }: Trace): string {
  return moments
    .flatMap(({ applied, event }) => (applied && 'effect' in event ? `${event.type} ${event.effect}` : []))
    .join(', ');
}
