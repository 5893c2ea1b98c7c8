import type { Cause, Event, Exposure, Limits, Memory, Usage } from '@treadle/core';
import { shares, isAnswered, turnsOf, capOf, type Turn, type CallRecord } from './turns.ts';
import type { View } from './agent-attempts.ts';
import { isExternal, activeMsAt } from './observed.ts';
import { turnOf } from './answers.ts';
import { followedBy, type Expected } from './expected.ts';
import type { Handling } from './call-handling.ts';
import { asSet, referenceOf } from './reference.ts';
import { ensure, outcomeOf, same, type Moment, type Trace } from './trace.ts';

/** I6: limits hold: turns, calls, tokens, cost, time, errors, and calls that run at once. */
export function checkLimits(trace: Trace): void {
  const turns = turnsOf(trace);
  const reference = referenceOf(trace, turns);
  const { expected, lengths, counts, handlings, remaining, agents, memories } = reference;
  const { narrowings, laterTools, holders, programs } = reference;
  checkTotals(trace);
  checkWritten(trace, turns);
  checkExposure(trace);
  const { budgeted = false } = trace.last.after.rules;
  for (const turn of turns) checkShares(turn, remaining.get(turn)!, handlings, budgeted);
  for (const [at, moment] of trace.moments.entries()) {
    if (!moment.applied) continue;
    checkCourse(moment, expected[at]!);
    checkTime(moment);
    const { contextTokens, calls, errors } = moment.after;
    const counted = [calls, errors];
    ensure(
      same(counted, counts[at]),
      () => `the state counts ${counted.join()} calls and errors; there were ${counts[at]?.join()}`,
    );
    ensure(
      contextTokens === lengths[at],
      () => `the state counts ${contextTokens} tokens of context; there are ${lengths[at]}`,
    );
    checkAtOnce(moment, trace);
    if (agents[at]) checkAgent(moment, agents[at]);
    else checkMemory(moment, memories[at]!);
    const { narrowed = [], narrowing = [] } = moment.after;
    const narrow = [asSet(narrowed), asSet(narrowing)];
    const holder = [moment.after.handedTo, moment.after.model, moment.after.handoff?.agent];
    ensure(
      same(holder, holders[at]),
      () => `the run is with ${holder.join()}, and must be with ${holders[at]?.join()}`,
    );
    ensure(same(moment.after.program, programs[at]), () => 'the run has another program than the last one');
    ensure(
      same(moment.after.nextTools, laterTools[at]),
      () => 'the tools of the next turn are others than the last change',
    );
    ensure(
      same(narrow, narrowings[at]),
      () => `the run is narrowed to ${JSON.stringify(narrow)}, and must be to ${JSON.stringify(narrowings[at])}`,
    );
    const turn = turns.findLast(({ repliedAt }) => repliedAt <= at);
    if (turn) checkOrder(moment, at, turn, handlings, trace);
  }
}

/** The state has every path once that calls which were allowed to run would write. */
function checkWritten({ moments }: Trace, turns: readonly Turn[]): void {
  const additions = moments.map((): string[] => []);
  for (const { calls } of turns) {
    for (const { permissions } of calls) {
      for (const { at, permission } of permissions) {
        const { type } = moments[at]!.event;
        if (permission.type !== 'allowed' || type === 'policy-changed') continue;
        const writes = permission.touches?.flatMap((touch) => {
          if (touch.type !== 'write') return [];
          const { path, on } = touch;
          return on ? `${on.type}:${on.name} ${path}` : path;
        });
        additions[at]!.push(...(writes ?? []));
      }
    }
  }
  const written = new Set<string>();
  for (const [at, { applied, after }] of moments.entries()) {
    for (const path of additions[at]!) written.add(path);
    if (!applied) continue;
    const [is, due] = [after.written?.toSorted() ?? [], [...written].toSorted()];
    ensure(same(is, due), () => `the state has ${is.join()} as written paths; it must have ${due.join()}`);
  }
}

/** The state has the first cause of each exposure: what the run starts with, then that of the first call. */
function checkExposure({ moments }: Trace): void {
  const due: { -readonly [Kind in keyof Exposure]: Exposure[Kind] } = {};
  const position = ({ effect = '' }: Cause): readonly number[] => effect.match(/\d+/g)?.map(Number) ?? [0, 0];
  for (const { applied, after, event } of moments) {
    if (!applied) continue;
    const seen = event.type === 'run-started' ? event.exposure : exposesIn(event);
    for (const kind of ['outside', 'private'] as const) {
      const [had, now] = [due[kind], seen?.[kind]];
      if (!now) continue;
      const [[turn, index], [newTurn, newIndex]] = [position(had ?? now), position(now)] as [number[], number[]];
      if (!had || newTurn! < turn! || (newTurn === turn && newIndex! < index!)) due[kind] = now;
    }
    const is = after.exposure ?? {};
    ensure(
      same(is.outside, due.outside) && same(is.private, due.private),
      () => `the run has seen ${JSON.stringify(due)}, and the state has ${JSON.stringify(is)}`,
    );
  }
}

function exposesIn(event: Event): Exposure | undefined {
  if (event.type === 'tool-settled') return event.result.type === 'result' ? event.result.exposes : undefined;
  return event.type === 'client-result-given' ? event.exposes : undefined;
}

/** The run continues and ends exactly as the rules require. */
function checkCourse(moment: Moment, due: Expected): void {
  const came = followedBy(moment);
  ensure(
    same(came, due),
    () => `after ${moment.event.type} ${JSON.stringify(due)} must follow; ${JSON.stringify(came)} followed`,
  );
}

/** The state of a typed agent: attempt, rejection, memory and, when a turn starts, the proposal. */
function checkAgent({ after, effects }: Moment, due: View): void {
  const { attempt, memory, rejection, proposal } = after.agent!;
  const outcome = outcomeOf(after);
  // A limit may end the run between two attempts. Whether the next one counts as started is not specified.
  if (outcome && outcome.type !== 'completed' && outcome.type !== 'cancelled') return;
  const begins = effects.some(({ type }) => type === 'call-model' || type === 'prepare-turn');
  const is = { attempt, memory, rejection, proposal: begins ? proposal : due.proposal };
  ensure(same(is, due), () => `the agent must be ${JSON.stringify(due)}, and is ${JSON.stringify(is)}`);
}

/** What tools have stored, and nothing else, is in the memory. */
function checkMemory({ after }: Moment, due: Memory): void {
  const is = Object.fromEntries(Object.entries(after.memory ?? {}).toSorted(([a], [b]) => (a < b ? -1 : 1)));
  ensure(same(is, due), () => `the memory must be ${JSON.stringify(due)}, and is ${JSON.stringify(is)}`);
}

/** The totals of turns, calls, tokens and cost. */
function checkTotals({ world: { rules }, moments, last }: Trace): void {
  const { limits, maxTurns, closingTurn } = rules;
  const asked = new Set<number>();
  const run = new Set<string>();
  let [tokens, cost] = [0, 0];
  for (const { applied, event, effects } of moments) {
    if (!applied) continue;
    const usage = usageIn(event);
    if (usage) {
      tokens += usage.inputTokens + usage.outputTokens;
      cost += usage.cost ?? NaN;
    }
    for (const effect of effects) {
      if (effect.type === 'call-model' || effect.type === 'prepare-turn') {
        asked.add(turnOf(effect.id));
        // A turn that has started continues, also after a compaction that it required.
        if (effect.id.endsWith('.model.1')) continue;
        ensure(tokens < (limits.tokens ?? Infinity), () => `${effect.id} was issued after ${tokens} tokens were used`);
        ensure(
          limits.cost === undefined || cost < limits.cost,
          () => `${effect.id} was issued after a cost of ${cost}`,
        );
      } else if (effect.type === 'call-tool' || effect.type === 'await-client') {
        const own = effect.call.name === rules.agent?.output;
        const cap = own ? 128 : capOf(rules);
        if (!own) run.add(`${effect.call.turn} ${effect.call.index}`);
        ensure(effect.call.index < cap, () => `${effect.id} ran beyond the cap of ${cap}`);
      }
    }
  }
  const most = maxTurns * (rules.agent?.maxAttempts ?? 1) + (closingTurn && !rules.agent ? 1 : 0);
  ensure(asked.size <= most, () => `there were ${asked.size} turns; the limit is ${most}`);
  ensure(run.size <= (limits.calls ?? Infinity), () => `${run.size} calls ran; the limit is ${limits.calls}`);
  ensure(last.after.turn === asked.size, () => `the state counts ${last.after.turn} turns; there were ${asked.size}`);
  const { inputTokens, outputTokens, cost: said } = last.after.usage;
  ensure(
    inputTokens + outputTokens === tokens && Object.is(said ?? NaN, cost),
    () => `the state counts ${inputTokens + outputTokens} tokens for ${said}; used were ${tokens} for ${cost}`,
  );
}

/** The usage that an event reports: of the model, of a summary, or of a child run. */
function usageIn(event: Event): Usage | undefined {
  if (event.type === 'model-replied') return event.usage;
  if (event.type === 'history-compacted') return event.result.type === 'summary' ? event.result.usage : undefined;
  return event.type === 'tool-settled' && event.result.type === 'result' ? event.result.usage : undefined;
}

const LIMITS = ['calls', 'tokens', 'cost', 'durationMs'] as const;

/** Each child run of a turn receives its share of the remaining limits, and all together no more than those. */
function checkShares(
  { calls, number }: Turn,
  remaining: Limits,
  handlings: ReadonlyMap<CallRecord, Handling>,
  budgeted: boolean,
): void {
  const draws = ({ facts }: CallRecord): boolean => budgeted && facts?.drawsOnLedger === true;
  const total = { calls: 0, tokens: 0, cost: 0, durationMs: 0 };
  for (const [place, call] of calls.entries()) {
    const { index, facts, log } = call;
    // Branches share equally, so that one before others gets less too.
    const others = calls.some(
      (other, at) =>
        at !== place &&
        (at < place
          ? other.facts?.share && !draws(other) && handlings.get(other) === 'runs'
          : facts?.drawsOnLedger && other.facts?.drawsOnLedger),
    );
    const given = log.flatMap((record) =>
      record.type === 'issued' && 'call' in record.effect ? [record.effect.call.limits] : [],
    );
    const where = `call ${index} of turn ${number}`;
    const [limits, ...again] = given;
    ensure(
      again.every((one) => same(one, limits)),
      () => `${where} receives other limits when it runs again`,
    );
    if (given.length === 0) continue;
    ensure(
      (limits === undefined) === (facts?.share === undefined),
      () => `${where} must have limits exactly if its tool has a share`,
    );
    if (!limits) continue;
    if (draws(call)) {
      const { durationMs } = remaining;
      const due = durationMs === undefined ? {} : { durationMs: Math.floor(durationMs) };
      ensure(same(limits, due), () => `${where} draws on the ledger, and receives ${JSON.stringify(limits)}`);
      continue;
    }
    for (const name of LIMITS) {
      ensure(
        (limits[name] === undefined) === (remaining[name] === undefined),
        () => `${where} must have a limit of ${name} exactly if the run has one`,
      );
      // Time passes for all of them at once.
      const isTime = name === 'durationMs';
      const most = (remaining[name] ?? 0) * (isTime && facts!.drawsOnLedger ? 1 : facts!.share!);
      const part = limits[name] ?? 0;
      if (isTime) {
        ensure(
          limits[name] === undefined || part === Math.floor(most),
          () => `${where} receives ${part} ms of ${most}`,
        );
        continue;
      }
      ensure(part <= most && (others || part > most - 1), () => `${where} receives ${part} ${name} instead of ${most}`);
      total[name] += part;
      ensure(
        total[name] <= (remaining[name] ?? 0) + 1e-9,
        () => `the children up to ${where} receive ${total[name]} ${name} in total`,
      );
    }
  }
}

/** The active time, and no end by the deadline before it has passed. */
function checkTime({ event, after, observed }: Moment): void {
  ensure(
    after.activeMs === observed.after.activeMs,
    () => `the state counts ${after.activeMs} ms of active time; there were ${observed.after.activeMs}`,
  );
  if (event.type !== 'deadline-passed' || event.effect !== undefined) return;
  const { durationMs = Infinity } = observed.before.rules!.limits;
  ensure(activeMsAt(observed.before, event) >= durationMs, () => 'the deadline ended the run before it passed');
}

function checkAtOnce({ observed: { after } }: Moment, { world: { rules } }: Trace): void {
  const running = [...after.open.values()].flatMap((one) => {
    const { effect } = one;
    const runs = effect.type === 'call-tool' || effect.type === 'verify-tool';
    return runs && !isExternal(after, one) ? effect.call : [];
  });
  ensure(
    running.length <= rules.maxParallel,
    () => `${running.length} calls run at once; the limit is ${rules.maxParallel}`,
  );
  const alone = running.find(({ exclusive }) => exclusive);
  ensure(!alone || running.length === 1, () => `${alone?.name} does not run alone`);
}

/** A call starts after the calls that it has to wait for. */
function checkOrder(
  { effects }: Moment,
  at: number,
  { calls, number }: Turn,
  handlings: ReadonlyMap<CallRecord, Handling>,
  { world: { rules } }: Trace,
): void {
  for (const effect of effects) {
    if (effect.type !== 'call-tool' && effect.type !== 'verify-tool' && effect.type !== 'await-client') continue;
    const call = calls[effect.call.index]!;
    ensure(
      call.facts?.exclusive === effect.call.exclusive,
      () => `${effect.id} is issued with another value of exclusive`,
    );
    for (const other of calls.slice(0, call.index)) {
      if (handlings.get(other) !== 'runs' || isAnswered(other, at)) continue;
      ensure(
        rules.parallel,
        () => `call ${call.index} of turn ${number} starts before call ${other.index} is answered`,
      );
      ensure(
        !shares(other, call),
        () => `call ${call.index} of turn ${number} starts while call ${other.index} uses the same resource`,
      );
    }
  }
}
