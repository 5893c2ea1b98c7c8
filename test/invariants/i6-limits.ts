import { isAnswered } from './answered.ts';
import { activeMsAt } from './books.ts';
import { inWords, referenceOf, type Disposition } from './reference.ts';
import { demand, same, type Moment, type Trace } from './trace.ts';
import { capOf, shares, turnsOf, type CallRecord, type Turn } from './turns.ts';

/** I6: limits hold: turns, calls, tokens, cost, time, errors; and how much goes on at once. */
export function checkLimits(trace: Trace): void {
  const turns = turnsOf(trace);
  const { expected, dispositions } = referenceOf(trace, turns);
  checkTotals(trace, turns);
  for (const [at, moment] of trace.moments.entries()) {
    if (!moment.taken) continue;
    checkCourse(moment, expected[at]!);
    checkTime(moment);
    checkAtOnce(moment, trace);
    const turn = turns.findLast(({ repliedAt }) => repliedAt <= at);
    if (turn) checkOrder(moment, at, turn, dispositions, trace);
  }
}

/** The run goes on and ends exactly when the rules say so. */
function checkCourse(
  { event, effects, after }: Moment,
  expected: NonNullable<ReturnType<typeof referenceOf>['expected'][number]>,
): void {
  const model = effects.find(({ type }) => type === 'call-model');
  const came = inWords(after) ?? (model?.type === 'call-model' ? { choice: model.toolChoice } : 'nothing');
  const due =
    expected.type === 'end' ? expected.outcome : expected.type === 'ask' ? { choice: expected.choice } : 'nothing';
  demand(
    same(came, due),
    () => `after ${event.type} there must be ${JSON.stringify(due)}, and there is ${JSON.stringify(came)}`,
  );
}

/** The plain sums, whatever led to them. */
function checkTotals({ world: { rules }, moments, last }: Trace, turns: readonly Turn[]): void {
  const { limits, maxTurns, closingTurn } = rules;
  const asked = new Set<string>();
  const run = new Set<string>();
  let [tokens, cost] = [0, 0];
  for (const { taken, event, effects } of moments) {
    if (!taken) continue;
    if (event.type === 'model-replied') {
      tokens += event.usage.inputTokens + event.usage.outputTokens;
      cost += event.usage.cost ?? Infinity;
    }
    for (const effect of effects) {
      if (effect.type === 'call-model') {
        asked.add(effect.id);
        demand(tokens < (limits.tokens ?? Infinity), () => `${effect.id} was asked with ${tokens} tokens spent`);
        demand(limits.cost === undefined || cost < limits.cost, () => `${effect.id} was asked with a cost of ${cost}`);
      } else if (effect.type === 'call-tool' || effect.type === 'await-client') {
        run.add(`${effect.call.turn} ${effect.call.index}`);
        demand(effect.call.index < capOf(rules), () => `${effect.id} ran beyond the cap of ${capOf(rules)}`);
      }
    }
  }
  demand(asked.size <= maxTurns + (closingTurn ? 1 : 0), () => `${asked.size} turns, and the limit is ${maxTurns}`);
  demand(run.size <= (limits.calls ?? Infinity), () => `${run.size} calls ran, and the limit is ${limits.calls}`);
  demand(last.after.turn === asked.size, () => `it says that it had ${last.after.turn} turns, and had ${asked.size}`);
  const used = turns.reduce((sum, { reply }) => sum + reply.usage.inputTokens + reply.usage.outputTokens, 0);
  const { inputTokens, outputTokens } = last.after.usage;
  demand(
    inputTokens + outputTokens === used,
    () => `it says that it used ${inputTokens + outputTokens} tokens, and used ${used}`,
  );
}

/** The time that counts, and no end by time before it is up. */
function checkTime({ event, after, books }: Moment): void {
  demand(
    after.activeMs === books.after.activeMs,
    () => `it says that it worked ${after.activeMs} ms, and did ${books.after.activeMs}`,
  );
  if (event.type !== 'deadline-passed' || event.effect !== undefined) return;
  const { durationMs = Infinity } = books.before.rules!.limits;
  demand(activeMsAt(books.before, event.at) >= durationMs, () => 'it ran out of time before its time');
}

function checkAtOnce({ books: { after } }: Moment, { world: { rules } }: Trace): void {
  const running = [...after.open.values()].flatMap(({ effect, parked }) =>
    !parked && (effect.type === 'call-tool' || effect.type === 'verify-tool') ? effect.call : [],
  );
  demand(
    running.length <= rules.maxParallel,
    () => `${running.length} run at once, and the limit is ${rules.maxParallel}`,
  );
  const alone = running.find(({ exclusive }) => exclusive);
  demand(!alone || running.length === 1, () => `${alone?.name} does not run alone`);
}

/** What begins now begins after what it has to wait for. */
function checkOrder(
  { effects }: Moment,
  at: number,
  { calls, number }: Turn,
  dispositions: ReadonlyMap<CallRecord, Disposition>,
  { world: { rules } }: Trace,
): void {
  for (const effect of effects) {
    if (effect.type !== 'call-tool' && effect.type !== 'verify-tool' && effect.type !== 'await-client') continue;
    const call = calls[effect.call.index]!;
    demand(call.facts?.exclusive === effect.call.exclusive, () => `${effect.id} is issued as another kind of tool`);
    for (const other of calls.slice(0, call.index)) {
      if (dispositions.get(other) !== 'runs' || isAnswered(other, at)) continue;
      demand(rules.parallel, () => `call ${call.index} of turn ${number} begins before ${other.index} is answered`);
      demand(!shares(other, call), () => `call ${call.index} of turn ${number} takes what ${other.index} holds`);
    }
  }
}
