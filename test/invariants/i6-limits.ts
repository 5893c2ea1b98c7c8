import type { Event, Limits, Usage } from '@treadle/core';
import { isAnswered } from './answered.ts';
import type { View } from './attempts.ts';
import { activeMsAt } from './books.ts';
import { turnOf } from './answers.ts';
import { followedBy, type Expected } from './expected.ts';
import type { Disposition } from './disposition.ts';
import { referenceOf } from './reference.ts';
import { demand, outcomeOf, same, type Moment, type Trace } from './trace.ts';
import { capOf, shares, turnsOf, type CallRecord, type Turn } from './turns.ts';

/** I6: limits hold: turns, calls, tokens, cost, time, errors; and how much goes on at once. */
export function checkLimits(trace: Trace): void {
  const turns = turnsOf(trace);
  const { expected, lengths, counts, dispositions, left, agents } = referenceOf(trace, turns);
  checkTotals(trace);
  for (const turn of turns) checkShares(turn, left.get(turn)!, dispositions);
  for (const [at, moment] of trace.moments.entries()) {
    if (!moment.taken) continue;
    checkCourse(moment, expected[at]!);
    checkTime(moment);
    const { contextTokens, calls, errors } = moment.after;
    const counted = [calls, errors];
    demand(
      same(counted, counts[at]),
      () => `it counts ${counted.join()} calls and errors, and there were ${counts[at]?.join()}`,
    );
    demand(contextTokens === lengths[at], () => `it counts ${contextTokens} tokens, and there are ${lengths[at]}`);
    checkAtOnce(moment, trace);
    if (agents[at]) checkAgent(moment, agents[at]);
    const turn = turns.findLast(({ repliedAt }) => repliedAt <= at);
    if (turn) checkOrder(moment, at, turn, dispositions, trace);
  }
}

/** The run goes on and ends exactly when the rules say so, and as they say. */
function checkCourse(moment: Moment, due: Expected): void {
  const came = followedBy(moment);
  demand(
    same(came, due),
    () => `after ${moment.event.type} there must be ${JSON.stringify(due)}, and there is ${JSON.stringify(came)}`,
  );
}

/**
 * The attempt that goes on, why there is another one, what helpers remember, and, when a turn begins, what would be
 * submitted.
 */
function checkAgent({ after, effects }: Moment, due: View): void {
  const { attempt, memory, rejection, proposal } = after.agent!;
  const outcome = outcomeOf(after);
  // A limit of the run may end it between two attempts, and then it is neither here nor there.
  if (outcome && outcome.type !== 'completed' && outcome.type !== 'cancelled') return;
  const begins = effects.some(({ type }) => type === 'call-model' || type === 'prepare-turn');
  const is = { attempt, memory, rejection, proposal: begins ? proposal : due.proposal };
  demand(same(is, due), () => `the agent must be at ${JSON.stringify(due)}, and is at ${JSON.stringify(is)}`);
}

/** The plain sums, whatever led to them. */
function checkTotals({ world: { rules }, moments, last }: Trace): void {
  const { limits, maxTurns, closingTurn } = rules;
  const asked = new Set<number>();
  const run = new Set<string>();
  let [tokens, cost] = [0, 0];
  for (const { taken, event, effects } of moments) {
    if (!taken) continue;
    const usage = usageIn(event);
    if (usage) {
      tokens += usage.inputTokens + usage.outputTokens;
      cost += usage.cost ?? NaN;
    }
    for (const effect of effects) {
      if (effect.type === 'call-model' || effect.type === 'prepare-turn') {
        asked.add(turnOf(effect.id));
        // A turn that has begun goes on, also with a summary that it needed.
        if (effect.id.endsWith('.model.1')) continue;
        demand(tokens < (limits.tokens ?? Infinity), () => `${effect.id} was asked with ${tokens} tokens spent`);
        demand(limits.cost === undefined || cost < limits.cost, () => `${effect.id} was asked with a cost of ${cost}`);
      } else if (effect.type === 'call-tool' || effect.type === 'await-client') {
        const own = effect.call.name === rules.agent?.output;
        const cap = own ? 128 : capOf(rules);
        if (!own) run.add(`${effect.call.turn} ${effect.call.index}`);
        demand(effect.call.index < cap, () => `${effect.id} ran beyond the cap of ${cap}`);
      }
    }
  }
  const most = maxTurns * (rules.agent?.maxAttempts ?? 1) + (closingTurn && !rules.agent ? 1 : 0);
  demand(asked.size <= most, () => `${asked.size} turns, and the limit is ${most}`);
  demand(run.size <= (limits.calls ?? Infinity), () => `${run.size} calls ran, and the limit is ${limits.calls}`);
  demand(last.after.turn === asked.size, () => `it says that it had ${last.after.turn} turns, and had ${asked.size}`);
  const { inputTokens, outputTokens, cost: said } = last.after.usage;
  demand(
    inputTokens + outputTokens === tokens && Object.is(said ?? NaN, cost),
    () => `it says that it used ${inputTokens + outputTokens} tokens for ${said}, and used ${tokens} for ${cost}`,
  );
}

/** What a fact says that was used: by the model, by a summary, by a run that worked for a call. */
function usageIn(event: Event): Usage | undefined {
  if (event.type === 'model-replied') return event.usage;
  if (event.type === 'history-compacted') return event.result.type === 'summary' ? event.result.usage : undefined;
  return event.type === 'tool-settled' && event.result.type === 'result' ? event.result.usage : undefined;
}

const LIMITS = ['calls', 'tokens', 'cost', 'durationMs'] as const;

/** Runs that work for calls of one turn get parts of what is left, and all together no more than that. */
function checkShares({ calls, number }: Turn, left: Limits, dispositions: ReadonlyMap<CallRecord, Disposition>): void {
  const total = { calls: 0, tokens: 0, cost: 0, durationMs: 0 };
  for (const [place, call] of calls.entries()) {
    const { index, facts, story } = call;
    const others = calls.slice(0, place).some((other) => other.facts?.share && dispositions.get(other) === 'runs');
    const given = story.flatMap((chapter) =>
      chapter.type === 'issued' && 'call' in chapter.effect ? [chapter.effect.call.limits] : [],
    );
    const where = `call ${index} of turn ${number}`;
    const [limits, ...again] = given;
    demand(
      again.every((one) => same(one, limits)),
      () => `${where} gets other limits when it runs again`,
    );
    if (given.length === 0) continue;
    demand((limits === undefined) === (facts?.share === undefined), () => `${where} has limits, or has not`);
    if (!limits) continue;
    for (const name of LIMITS) {
      demand(
        (limits[name] === undefined) === (left[name] === undefined),
        () => `${where} has a limit of ${name}, or not`,
      );
      const most = (left[name] ?? 0) * facts!.share!;
      const part = limits[name] ?? 0;
      demand(part <= most && (others || part > most - 1), () => `${where} gets ${part} ${name}, and not ${most}`);
      total[name] += part;
      demand(total[name] <= (left[name] ?? 0) + 1e-9, () => `up to ${where} ${total[name]} ${name} are given away`);
    }
  }
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
    parked === undefined && (effect.type === 'call-tool' || effect.type === 'verify-tool') ? effect.call : [],
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
