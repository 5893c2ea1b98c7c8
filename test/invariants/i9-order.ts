import type { Core } from './core.ts';
import { drive } from './drive.ts';
import { demand, messagesOf, outcomeOf, same, type Trace } from './trace.ts';
import type { Move, World } from './world.ts';

/**
 * I9: the order in which parallel effects settle changes neither the history nor the outcome. False if there was but one
 * order, so that nothing was found out.
 */
export function checkOrderFree(core: Pick<Core, 'NEW' | 'step'>, world: World, otherwise: readonly Move[]): boolean {
  const one = drive(core, world, { calm: true });
  if (!one.hadChoice) return false;
  const other = drive(core, world, { calm: true, reversed: true, moves: otherwise });
  const orders = `[${orderOf(one)}] and [${orderOf(other)}]`;
  demand(
    same(messagesOf(one.last.after), messagesOf(other.last.after)),
    () => `the histories differ by order: ${orders}`,
  );
  demand(same(outcomeOf(one.last.after), outcomeOf(other.last.after)), () => `the outcomes differ by order: ${orders}`);
  const [open, alike] = [one, other].map(({ last }) => [...last.books.after.open.keys()].sort());
  demand(same(open, alike), () => `what it waits for differs by order: ${orders}`);
  return orderOf(one) !== orderOf(other);
}

function orderOf({ moments }: Trace): string {
  return moments
    .flatMap(({ taken, event }) => (taken && 'effect' in event ? `${event.type} ${event.effect}` : []))
    .join(', ');
}
