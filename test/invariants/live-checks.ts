import { historyProblem } from '../provider/rules/messages.ts';
import type { Core } from './core.ts';
import { checkPairs } from './i1-results.ts';
import { checkLiveReplay } from './i5-replay.ts';
import type { LiveTrace } from './live.ts';
import { demand } from './trace.ts';

/** What of I1, I2, I4, I5 and I6 can be seen from outside the real shell, through crashes, pauses and cancels. */
export function checkLive(core: Pick<Core, 'replay'>, trace: LiveTrace): void {
  const { result, sightings, world, entries } = trace;
  for (const sighting of sightings) {
    demand(sighting.type !== 'stuck', () => `the run has neither ended nor paused: ${JSON.stringify(sighting)}`);
  }
  demand(result !== undefined, () => 'the run gave no result');
  demand((result.outcome === undefined) === result.waiting.length > 0, () => 'it has an outcome and waits, or neither');
  if (result.outcome) checkPairs(result.messages);
  const { output, agent } = world.rules;
  const typed = result.outcome?.type === 'completed' && (output !== undefined || agent !== undefined);
  demand((result.output !== undefined) === typed, () => `its output is ${JSON.stringify(result.output)}`);
  if (agent && result.outcome && !entries.some(({ event }) => OTHERS.includes(event.type))) {
    const problem = historyProblem(result.messages);
    demand(problem === undefined, () => `no provider takes the history: ${problem}`);
  }
  checkOnce(trace);
  checkLiveReplay(core, trace);
  const { durationMs: limit = Infinity } = world.rules.limits;
  // A run that is opened when its time is just up has one millisecond to find out.
  demand(result.durationMs <= limit + 1, () => `it worked ${result.durationMs} ms, and the limit is ${limit}`);
}

/** What others say comes in messages of its own. */
const OTHERS: readonly string[] = ['input-added', 'history-compacted'];

/** However often the process dies, what acts once acts once, unless it was asked whether it had. */
function checkOnce({ sightings }: LiveTrace): void {
  const acted = new Set<string>();
  for (const sighting of sightings) {
    if (sighting.type === 'verify-tool') acted.delete(sighting.id.replace('.verify.', '.tool.'));
    if (sighting.type !== 'call-tool' || !sighting.once) continue;
    demand(!acted.has(sighting.id), () => `${sighting.id} acts once, and ran again`);
    acted.add(sighting.id);
  }
}
