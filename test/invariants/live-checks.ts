import { historyProblem } from '../provider/rules/messages.ts';
import { replyOf, turnOf } from './answers.ts';
import type { Core } from './core.ts';
import { checkPairs } from './i1-results.ts';
import { checkPermission } from './i2-permission.ts';
import { checkLiveReplay } from './i5-replay.ts';
import { BLOCKED_MS, memoryKeys } from './live-world.ts';
import type { LiveTrace } from './live.ts';
import { NOTHING_OBSERVED, observedAfter } from './observed.ts';
import { ensure, outcomeOf, same, type Moment } from './trace.ts';
import { callsOf, hasRules, isFiltered } from './world.ts';

/** The parts of I1, I2, I4, I5 and I6 that can be observed from outside of the driver. */
export function checkLive(core: Pick<Core, 'replay' | 'step' | 'NEW'>, trace: LiveTrace): void {
  const { result, observations, world, entries } = trace;
  for (const observation of observations) {
    ensure(observation.type !== 'stuck', () => `the run has neither ended nor paused: ${JSON.stringify(observation)}`);
  }
  for (const observation of observations) {
    ensure(observation.type !== 'budget', () => `the budget does not hold: ${JSON.stringify(observation)}`);
  }
  ensure(result !== undefined, () => 'the run returned no result');
  ensure(
    (result.outcome === undefined) === result.waiting.length > 0,
    () => 'the run must either have an outcome or wait for something',
  );
  if (result.outcome) checkPairs(result.messages);
  const { output, agent } = world.rules;
  const typed = result.outcome?.type === 'completed' && (output !== undefined || agent !== undefined);
  ensure((result.output !== undefined) === typed, () => `the output of the run is ${JSON.stringify(result.output)}`);
  if (agent && result.outcome && !entries.some(({ event }) => OTHERS.includes(event.type))) {
    const problem = historyProblem(result.messages);
    ensure(problem === undefined, () => `providers reject the history: ${problem}`);
  }
  checkOnce(trace);
  checkAllowed(core, trace);
  checkLiveReplay(core, trace);
  checkRemembered(trace);
  checkExamined(trace);
  const { durationMs: limit = Infinity } = world.rules.limits;
  for (const observation of observations) {
    ensure(!('late' in observation && observation.late), () => `started too late: ${JSON.stringify(observation)}`);
    ensure(!('unjudged' in observation && observation.unjudged), () => `not judged: ${JSON.stringify(observation)}`);
  }
  // A run notices its deadline when a timer fires, or when a tool that blocks the event loop returns.
  ensure(
    result.durationMs <= limit + BLOCKED_MS,
    () => `the run was active for ${result.durationMs} ms; the limit is ${limit}`,
  );
}

/** Events that add messages of their own. */
const OTHERS: readonly string[] = ['input-added', 'history-compacted'];

/** I2 for the journal of the run, and for what its verdicts are made of: the policy and the tools. */
function checkAllowed({ step, NEW }: Pick<Core, 'step' | 'NEW'>, { world, entries }: LiveTrace): void {
  const moments: Moment[] = [];
  let [before, observed] = [NEW, NOTHING_OBSERVED];
  for (const { event } of entries) {
    const { state: after, effects } = step(before, event);
    const next = observedAfter(observed, event, effects, outcomeOf(after));
    moments.push({ event, applied: true, before, after, effects, observed: { before: observed, after: next } });
    if (event.type === 'calls-judged' && before.phase.type === 'judging') {
      const judged = before.phase.slots.flatMap(({ type, call }) => (type === 'queued' ? call : []));
      const scripted = callsOf(replyOf(world, turnOf(event.effect)));
      for (const [index, call] of judged.entries()) {
        const given = before.rules.judged && world.policy === undefined ? scripted[index]?.verdict : undefined;
        const own = call.needsApproval && !call.arguments.includes('"b"') ? 1 : 0;
        const entries = before.policies?.filter(hasRules).map(({ tools = {} }) => tools[call.name] ?? 'allow') ?? [];
        const narrow = (before.narrowed ?? []).flatMap(
          ({ ask, rules }) =>
            [ask?.includes(call.name) ? 'ask' : 'allow', rules?.tools?.[call.name] ?? 'allow'] as const,
        );
        const all = [...entries, ...narrow, given?.type ?? 'allow'];
        const due = Math.max(own, ...all.map((type) => STRICTNESS[type]));
        const is = event.verdicts[index]?.type;
        ensure(!is || STRICTNESS[is] >= due, () => `call ${index} of ${event.effect} was recorded as "${is}"`);
      }
    }
    [before, observed] = [after, next];
  }
  if (moments.length > 0) checkPermission({ world, moments, last: moments.at(-1)!, hadChoice: false });
}

const STRICTNESS = { allow: 0, ask: 1, deny: 2 } as const;

/** A call waits for the keys of the memory that it names, and for no others, and changes none but those. */
function checkRemembered({ world, entries }: LiveTrace): void {
  const named = new Map<string, readonly string[]>();
  for (const { event } of entries) {
    if (event.type === 'model-replied') {
      const calls = event.content.filter((part) => part.type === 'tool-call');
      for (const [index, { name, arguments: text }] of calls.entries()) {
        const { resources, arguments: repaired = text } = event.checks[index]!;
        if (!resources || name === 'read' || !world.tools.some((facts) => facts.name === name && !facts.client))
          continue;
        const keys = memoryKeys(name, JSON.parse(repaired));
        named.set(`t${turnOf(event.effect)}.tool.${index}`, keys);
        const waits = resources.filter((resource) => resource.startsWith('memory '));
        const due = keys.map((key) => `memory ${key}`);
        ensure(same(waits, due), () => `call ${index} of ${event.effect} waits for ${waits}, and must for ${due}`);
      }
    }
    if (event.type !== 'tool-settled' || event.result.type !== 'result') continue;
    const changed = Object.keys(event.result.memory ?? {});
    const keys = named.get(event.effect);
    ensure(!keys || changed.every((key) => keys.includes(key)), () => `${event.effect} changed ${changed.join()}`);
  }
}

/** Nothing is recorded that the filters replace or refuse, and every result of a tool that reads says what it exposes. */
function checkExamined({ world, entries }: LiveTrace): void {
  const names = new Map<string, string>();
  for (const { event } of entries) {
    if (event.type === 'model-replied') {
      const calls = event.content.filter((part) => part.type === 'tool-call');
      for (const [index, { name }] of calls.entries()) names.set(`t${turnOf(event.effect)}.tool.${index}`, name);
    }
    const given = event.type === 'tool-settled' ? event.result : event;
    if (given.type !== 'result' && given.type !== 'client-result-given') continue;
    const { effect } = event as { readonly effect: string };
    const call = effect.replace(/verify|client/, 'tool');
    const text = JSON.stringify(given.content);
    const raw = ['"yes"', '"no"', '"done"', 'image/png'].find((one) => text.includes(one));
    ensure(!isFiltered(world) || raw === undefined, () => `${effect} was recorded with ${raw}`);
    const changed = text.includes('"seen"') || text.includes('withheld');
    ensure((given.filtered !== undefined) === changed, () => `what the filters did to ${effect} is not recorded`);
    if (names.get(call) !== 'read' || given.isError) continue;
    ensure(given.exposes?.private?.effect === call, () => `${effect} does not say that it exposes private data`);
  }
}

/** A tool with the effect `once` runs once in spite of all crashes, unless it was verified in between. */
function checkOnce({ observations }: LiveTrace): void {
  const acted = new Set<string>();
  for (const observation of observations) {
    if (observation.type === 'verify-tool') acted.delete(observation.id.replace('.verify.', '.tool.'));
    if (observation.type !== 'call-tool' || !observation.once) continue;
    ensure(!acted.has(observation.id), () => `${observation.id} has the effect "once" and ran again`);
    acted.add(observation.id);
  }
}
