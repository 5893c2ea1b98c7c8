import { duplicateTool, factsOf, toolsByName, type Tool } from '../tools/tool.ts';
import { changeExecutors } from './call-model.ts';
import { checkAgents } from './handoff.ts';
import { requirePrices } from './open.ts';
import type { RunContext } from './perform.ts';

/* Tools that a running tool offers. Loaded when one does. */

/**
 * Adds tools from the next turn on. Those that the run has stay, unless this process has no code for them. `signal` is that of
 * the call that offers them.
 */
export async function offerTools(context: RunContext, offered: readonly Tool[], signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  const { options, opening, readResult, clock } = context;
  const before = context.state();
  const had = before.nextTools ?? before.tools;
  const executors = context.changedTools?.tools ?? context.tools;
  const added = [...toolsByName(offered).values()].filter(
    ({ name }) => name === readResult?.name || !executors.has(name) || !had.some((one) => one.name === name),
  );
  if (added.length === 0) return;
  const names = new Map(added.map((one) => [one.name, one]));
  if (readResult && names.has(readResult.name))
    throw duplicateTool(readResult.name, 'tools', 'the run itself', 'offer');
  checkAgents({ ...options, tools: added });
  requirePrices(opening.rules.limits, { ...options, tools: added });
  const tools = [...had.filter(({ name }) => !names.has(name)), ...added.map(factsOf)];
  const recorded = context.record({ type: 'tools-changed', at: clock.now(), tools, from: 'next-turn' });
  if (context.state() !== before) changeExecutors(context, new Map([...executors, ...names]), before.turn);
  await recorded;
}
