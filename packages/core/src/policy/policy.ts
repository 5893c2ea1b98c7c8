import { messageOf, TreadleError } from '../errors.ts';
import type { Autonomy } from '../machine/narrowing.ts';
import { systemClock, type Clock } from '../platform.ts';
import { allowedRule } from './allowed.ts';
import { autonomyRule, levelLimits, levelOf } from './autonomy.ts';
import { checkRules } from './check.ts';
import { commandJudge, commandsRule } from './commands.ts';
import { domainsRule, urlJudge } from './domains.ts';
import { touchExposure } from './exposes.ts';
import type { Analysers } from './facts.ts';
import { gatherFacts, textAnalysers } from './gather.ts';
import { pathJudge, pathsRule } from './paths.ts';
import { permissionsRule } from './permissions.ts';
import { askedIfUnknown, devicesRule, placeJudge, sessionJudge, sessionsRule } from './places.ts';
import { privateRule } from './private.ts';
import type {
  AskVerdict,
  JudgeContext,
  JudgedCall,
  LimitedRun,
  Policy,
  PolicyLimits,
  TouchExposure,
  Verdict,
} from './port.ts';
import { readThenSendRule } from './read-then-send.ts';
import { countCalls, memoryRates, placeCalls, rateRule, type RateStore } from './rate.ts';
import {
  jointOpinion,
  keptOpinions,
  STRICTNESS,
  type CallFacts,
  type Folders,
  type Opinion,
  type Rule,
  type RuleContext,
  type RuleName,
} from './rule.ts';
import type { PolicyRules } from './rules.ts';
import { scopesRule } from './scopes.ts';
import { toolEntriesRule } from './tool-entries.ts';
import { placedPath } from './applied.ts';

/*
 * A policy of rules. First everything about the calls is found out (`gatherFacts`), then the rules are evaluated, in this
 * order: allowed set, rate, autonomy, scopes, permissions, commands, paths, private paths, domains, devices, sessions,
 * exposure, tool entries.
 *
 * 1. The first denial decides.
 * 2. Otherwise people are asked if a rule asks. One exception: an `allow` entry for the tool satisfies an ask of the autonomy
 *    rule, and only of that.
 * 3. Otherwise the call is allowed.
 */

export interface PolicyOptions {
  /** How to find out about commands, paths and URLs. Default: only by their text. Pass those of `@treadle/tools`. */
  readonly analysers?: Analysers;
  /**
   * The absolute path of the folder where relative paths and globs start, and inside of which reads are allowed by default.
   * Without it, absolute paths are outside.
   */
  readonly folder?: string;
  /** What `~/` stands for in globs of the rules. */
  readonly home?: string;
  /**
   * Folders that a run may read while these sources narrow it, such as those of its skills (`skillFolders` of
   * `@treadle/core/skills`). They are absolute, without links and a slash at the end. What the rules deny in them stays denied.
   */
  readonly readable?: (narrowedBy: readonly string[]) => readonly string[];
  /** Counts calls for the rates. Default: all runs with this policy together, in memory. */
  readonly rates?: RateStore;
  readonly clock?: Pick<Clock, 'now'> & Partial<Pick<Clock, 'timer'>>;
}

/** A policy made of rules. */
export interface RulePolicy extends Policy {
  readonly rules: PolicyRules;
  withRules(rules: unknown): RulePolicy;
  limits(autonomy?: Autonomy, run?: LimitedRun): PolicyLimits;
  readonly exposes: TouchExposure;
  /** What each rule says about a call, and which decides. The call is not counted for the rates. */
  explain(call: ExplainedCall, context?: RuleContext): Promise<Explanation>;
}

/** A call to explain. What is absent is as for a tool that declares nothing. */
export interface ExplainedCall extends Partial<Omit<JudgedCall, 'name'>> {
  readonly name: string;
}

export interface Explanation {
  readonly verdict: Verdict;
  /** The rule that decided; absent if no rule has an opinion. */
  readonly rule?: RuleName;
  /** In the order of evaluation. Those after a denial are here too, though they are not evaluated for a call. */
  readonly rules: readonly RuleReport[];
}

export interface RuleReport {
  readonly rule: RuleName;
  /** What it looked at, in words. */
  readonly saw: string;
  /** `none`: it has no opinion on the call. */
  readonly verdict: 'allow' | 'ask' | 'deny' | 'none';
  readonly reason?: string;
  /** An `allow` entry for the tool satisfies this ask. */
  readonly satisfied?: true;
}

/** Creates a policy from rules. Throws `invalid-options` if they are malformed. */
export function policy(rules: PolicyRules, options: PolicyOptions = {}): RulePolicy {
  return rulePolicy(rules, { ...options, rates: options.rates ?? memoryRates() });
}

/** `live`: false for rules that a run has recorded, because calls are counted once, for the rates of the current rules. */
function rulePolicy(given: PolicyRules, options: PolicyOptions, live = true): RulePolicy {
  const { problems } = checkRules(given);
  if (problems.length > 0) {
    const all = problems.map(({ message }) => message).join(' ');
    throw new TreadleError('invalid-options', `The rules of the policy are malformed: ${all}`);
  }
  const rules = frozen(structuredClone(given));
  const { rates, clock = systemClock } = options;
  const analysers = { ...textAnalysers(options.folder), ...options.analysers };
  const gathered = async (call: JudgedCall, narrowedBy: readonly string[] = []): Promise<CallFacts> =>
    gatherFacts(call, analysers, options.readable?.(narrowedBy));
  const inOrder = compileRules(rules, options);
  return {
    rules,
    withRules: (recorded) => rulePolicy(recorded as PolicyRules, options, false),
    // They are for a model that decides what it does next. The steps of a program are those that somebody wrote.
    limits: (autonomy, run) => (run?.program ? {} : levelLimits(levelOf(rules, autonomy))),
    exposes: touchExposure(rules, options, gathered),
    async judge(calls, about) {
      const facts = await Promise.all(calls.map((call) => gathered(call, about.narrowedBy)));
      const isCounted = countedFor(rules, about);
      const { principal, signal } = about;
      const counting = { rules, principal, count: facts.filter(isCounted).length };
      const counts =
        live &&
        rates &&
        (about.program
          ? await placeCalls(rates, { ...counting, signal, clock })
          : await countCalls(rates, { ...counting, at: clock.now() }));
      const written = [...(about.written ?? [])];
      let next = 0;
      return facts.map((one) => {
        const rate = isCounted(one) && counts ? counts[next++] : undefined;
        const { verdict } = evaluate(inOrder, one, { ...ruleContext(about), written, ...(rate && { rate }) });
        if (verdict.type !== 'deny') written.push(...writesOf(one));
        return withApprovals(verdict, rules);
      });
    },
    async explain(call, context = {}) {
      const facts = await gathered({ ...UNDECLARED, ...call }, context.narrowedBy);
      const { verdict, judged } = evaluate(inOrder, facts, context, 'all');
      const satisfied = verdict.type !== 'deny' && entryAllows(judged);
      return {
        verdict: withApprovals(verdict, rules),
        ...(verdict.rule !== undefined && { rule: verdict.rule as RuleName }),
        rules: [
          ...problemReports(facts),
          ...judged.map(({ rule, opinion }) => report(rule, opinion, facts, context, satisfied)),
        ],
      };
    },
  };
}

/**
 * Which calls the rates are about. Those of a program only if rates are configured, because the defaults are for a model that
 * calls without end, and only those that touch something: its branches and expressions are no work.
 */
function countedFor({ rate }: PolicyRules, { program }: JudgeContext): (facts: CallFacts) => boolean {
  if (!program) return ({ clients }) => !clients;
  return ({ clients, call }) => !clients && rate !== undefined && call.touches?.length !== 0;
}

/** Also inside: the driver compares rules that are frozen only once. */
function frozen<T>(value: T): T {
  if (typeof value === 'object' && value !== null) Object.values(value).forEach(frozen);
  return Object.freeze(value);
}

const UNDECLARED: Omit<JudgedCall, 'name'> = {
  id: '',
  input: {},
  effect: 'once',
  client: false,
  touches: undefined,
  permissions: [],
  operation: undefined,
};

/** The rules of a policy, in the order of evaluation. */
export function compileRules(rules: PolicyRules, folders: Folders): readonly Rule[] {
  try {
    const judges = {
      path: keptOpinions(askedIfUnknown(pathJudge(rules, folders))),
      command: keptOpinions(askedIfUnknown(commandJudge(rules))),
      url: keptOpinions(askedIfUnknown(urlJudge(rules))),
      place: keptOpinions(placeJudge(rules)),
      session: keptOpinions(sessionJudge(rules)),
    };
    return [
      allowedRule(),
      rateRule(rules),
      autonomyRule(rules, judges),
      scopesRule(),
      permissionsRule(rules),
      commandsRule(judges.command, rules),
      pathsRule(judges.path),
      privateRule(rules, folders),
      domainsRule(judges.url),
      devicesRule(judges.place),
      sessionsRule(judges.session),
      readThenSendRule(rules),
      toolEntriesRule(rules),
    ];
  } catch (cause) {
    throw new TreadleError('invalid-options', `A glob in "paths" or "private" cannot be used: ${messageOf(cause)}.`, {
      cause,
    });
  }
}

function ruleContext({ autonomy, narrowedBy, principal, allowed, exposure }: JudgeContext): RuleContext {
  return {
    ...(autonomy !== undefined && { autonomy }),
    ...(narrowedBy && { narrowedBy }),
    ...(principal && { principal }),
    ...(allowed && { allowed }),
    ...(exposure && { exposure }),
  };
}

function writesOf({ paths }: CallFacts): readonly string[] {
  return paths.flatMap(({ type, given, on }) => (type === 'write' ? placedPath(given, on) : []));
}

interface Evaluated {
  readonly verdict: Verdict;
  /** The rules that were evaluated. */
  readonly judged: readonly Judged[];
}

interface Judged {
  readonly rule: Rule;
  readonly opinion: Opinion | undefined;
}

/** `all`: also the rules after a denial. They do not change the verdict. */
export function evaluate(rules: readonly Rule[], facts: CallFacts, context: RuleContext, which?: 'all'): Evaluated {
  const judged: Judged[] = [];
  let denial: Verdict | undefined = facts.problem === undefined ? undefined : factsMissing(facts.problem);
  for (const rule of rules) {
    if (denial && !which) break;
    const opinion = rule.judge(facts, context);
    judged.push({ rule, opinion });
    if (opinion?.type === 'deny') denial ??= { ...opinion, rule: rule.name };
  }
  return { verdict: denial ?? strictestVerdict(judged), judged };
}

function factsMissing(problem: string): Verdict {
  return { type: 'deny', reason: `what it would touch could not be found out: ${problem}`, rule: 'facts' };
}

/** Without a denial. The first ask decides; one of the autonomy rule only if no other rule asks. */
function strictestVerdict(judged: readonly Judged[]): Verdict {
  const satisfied = entryAllows(judged);
  let decided: Verdict = { type: 'allow' };
  for (const { rule, opinion } of judged) {
    const { name } = rule;
    if (!opinion || (name === 'autonomy' && opinion.type === 'ask' && satisfied)) continue;
    const isStricter = STRICTNESS[opinion.type] > STRICTNESS[decided.type];
    const replaces = opinion.type === decided.type && (opinion.type === 'allow' || decided.rule === 'autonomy');
    if (isStricter || replaces) decided = { ...opinion, rule: name };
  }
  return decided.type === 'ask' && decided.rule !== 'autonomy' ? { ...decided, eachTime: true } : decided;
}

/** Whether an entry for the tool allows the call, which satisfies an ask of the autonomy rule. No other rule can do that. */
function entryAllows(judged: readonly Judged[]): boolean {
  const opinions = judged.flatMap(({ rule, opinion }) => (rule.name === 'tools' ? [opinion] : []));
  return jointOpinion(opinions)?.type === 'allow';
}

function withApprovals(verdict: Verdict, { approvals }: PolicyRules): Verdict {
  if (verdict.type !== 'ask' || !approvals) return verdict;
  const { minutes, required, approvers } = approvals;
  return {
    ...verdict,
    ...(minutes !== undefined && { ttlMs: minutes * 60_000 }),
    ...(required !== undefined && { required }),
    ...(approvers && { approvers }),
  } satisfies AskVerdict;
}

function problemReports({ problem }: CallFacts): readonly RuleReport[] {
  if (problem === undefined) return [];
  const { reason } = factsMissing(problem) as { readonly reason: string };
  return [{ rule: 'facts', saw: problem, verdict: 'deny', reason }];
}

function report(
  rule: Rule,
  opinion: Opinion | undefined,
  facts: CallFacts,
  context: RuleContext,
  satisfied: boolean,
): RuleReport {
  return {
    rule: rule.name,
    saw: rule.saw(facts, context),
    verdict: opinion?.type ?? 'none',
    ...(opinion && 'reason' in opinion && { reason: opinion.reason }),
    ...(rule.name === 'autonomy' && opinion?.type === 'ask' && satisfied && { satisfied: true }),
  };
}
