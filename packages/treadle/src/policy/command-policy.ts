import { realpathSync } from 'node:fs';
import { homedir } from 'node:os';
import { basename, dirname } from 'node:path';
import { stableJson, type State, type Tool, type Verdict } from '@treadle/core';
import {
  type Analysers,
  checkRules,
  policy,
  type PolicyOptions,
  type PolicyRules,
  type RateStore,
  type RuleContext,
  type RulePolicy,
} from '@treadle/core/policy';
import { pathFacts, urlFacts } from '@treadle/tools';
import type { Config } from '../config/config.ts';
import type { CommandContext } from '../config/context.ts';
import { hooksModule } from '../config/hooks.ts';
import { userName, type ExplainRequest } from '../run/ask-approval.ts';
import type { Colours } from '../terminal/colours.ts';
import { explanationLines } from './explanation.ts';
import { judgedCall } from './judged-call.ts';
import { exactGlob, unattended, type UnattendedOptions } from './unattended.ts';

/**
 * - `policy`: people are asked where the rules say so.
 * - `always`: people are asked about every call that the rules do not deny.
 * - `never`: nobody can be asked, so what the rules ask about is denied.
 * - `yes`: the user has approved what the rules ask about, with --yes.
 */
export type Asking = 'policy' | 'always' | 'never' | 'yes';

/** The policy of `run`, `chat`, `serve` and `runs resume`. `rates`: of the store, for all its processes; default: in memory. */
export function commandPolicy(
  context: CommandContext,
  asking: Asking,
  { rates, onDenied, onRefused, place, limitedByLevel = true }: CommandPolicyOptions = {},
): RulePolicy {
  const rules = withOwnFiles(rulesOf(context.loaded.config), context);
  const { folder, readable } = context;
  const options = { ...factsOptions(folder, rules, place), ...(readable && { readable }), ...(rates && { rates }) };
  const ruled = policy(asking === 'always' ? askingRules(rules) : rules, options);
  const made = limitedByLevel ? ruled : withoutLimits(ruled);
  if (asking !== 'yes' && asking !== 'never') return remembered(made);
  const watched = onRefused ? reported(made, onRefused) : made;
  if (asking === 'yes') return approved(watched, userName());
  return unattended(watched, { folder, file: context.loaded.file, onDenied });
}

/** What the last calls were judged with, for explanations. */
const judgedWith = new WeakMap<RulePolicy, RuleContext>();

function remembered(made: RulePolicy): RulePolicy {
  const remembering: RulePolicy = {
    ...made,
    judge(calls, context) {
      judgedWith.set(remembering, context);
      return made.judge(calls, context);
    },
  };
  return remembering;
}

interface CommandPolicyOptions extends Pick<UnattendedOptions, 'onDenied'> {
  readonly rates?: RateStore | undefined;
  /** Gets each call that the rules deny, unless it is `pure`: without the call, the task may not be done. */
  readonly onRefused?: (tool: string, reason: string) => void;
  /** Finds out facts at other places, such as devices. */
  readonly place?: Analysers['place'] | undefined;
  /** Whether the level of the policy limits turns and calls; default: yes. `run` and `chat` have a turn limit of their own. */
  readonly limitedByLevel?: boolean;
}

function withoutLimits(made: RulePolicy): RulePolicy {
  return { ...made, limits: () => ({}), withRules: (rules) => withoutLimits(made.withRules(rules)) };
}

function reported(made: RulePolicy, onRefused: (tool: string, reason: string) => void): RulePolicy {
  return {
    ...made,
    async judge(calls, context) {
      const verdicts = await made.judge(calls, context);
      for (const [index, verdict] of verdicts.entries()) {
        const { name, effect } = calls[index]!;
        if (verdict.type === 'deny' && effect !== 'pure') onRefused(name, verdict.reason);
      }
      return verdicts;
    },
    withRules: (rules) => reported(made.withRules(rules), onRefused),
  };
}

/**
 * Allows what the policy asks one person about, in the name of the user. The verdict is recorded like an approval, but the run
 * does not pause, so what its tools hold stays open. What others or several people have to approve is still asked about.
 */
function approved(asking: RulePolicy, user: string): RulePolicy {
  return {
    ...asking,
    async judge(calls, context) {
      const verdicts = await asking.judge(calls, context);
      return verdicts.map((verdict): Verdict => {
        if (verdict.type !== 'ask' || verdict.approvers || (verdict.required ?? 1) > 1) return verdict;
        return { type: 'allow', rule: `${verdict.rule ?? 'policy'}, approved by ${user} with --yes` };
      });
    },
    withRules: (rules) => approved(asking.withRules(rules), user),
  };
}

/**
 * The policy for a run that is resumed. A run that was started with `--ask` keeps that. The policy of a program that has only
 * code is not available here, so every call needs approval.
 */
export function resumedPolicy(
  context: CommandContext,
  { rules, policies }: Pick<State, 'rules' | 'policies'>,
  { rates, yes, place }: { readonly rates: RateStore; readonly yes: boolean; readonly place?: Analysers['place'] },
): RulePolicy {
  // What limits the run was decided when it was started.
  const options = { rates, place, limitedByLevel: false };
  if (yes) return commandPolicy(context, 'yes', options);
  const always = commandPolicy(context, 'always', options);
  const latest = policies?.at(-1);
  const byCode = (rules.judged || policies !== undefined) && latest === undefined;
  return byCode || stableJson(latest) === stableJson(always.rules) ? always : commandPolicy(context, 'policy', options);
}

/** How the command finds out what a call would touch. */
function factsOptions(folder: string, { private: own }: PolicyRules, place: Analysers['place']): PolicyOptions {
  const home = homedir();
  let analyse: Analysers['command'];
  const analysers: Analysers = {
    command: async (...about) => {
      const { commandAnalyser } = await import('@treadle/tools/commands');
      analyse ??= commandAnalyser({ folder, ...(own?.paths && { private: own.paths }) });
      return analyse(...about);
    },
    path: (path) => pathFacts(path, { folder, home }),
    url: urlFacts,
    ...(place && { place }),
  };
  return { folder, home, analysers };
}

/** [policy] with the permissions of [orchestrator.tools]. A permission is held if neither says false. */
export function rulesOf({ policy: rules = {}, orchestrator }: Config): PolicyRules {
  const own = orchestrator?.tools?.permissions;
  if (!own) return rules;
  const refused = Object.entries(own).filter(([, isHeld]) => !isHeld);
  return { ...rules, permissions: { ...own, ...rules.permissions, ...Object.fromEntries(refused) } };
}

/** Denies the configuration, the store and the secrets beside it if they are not where the rules deny them in any case. */
function withOwnFiles(rules: PolicyRules, { loaded, store }: CommandContext): PolicyRules {
  const files = [loaded.path, hooksModule(loaded)].filter((path) => path !== undefined).flatMap(withTarget);
  const own = [
    ...files.filter((file) => basename(file) !== 'treadle.toml').map(exactGlob),
    ...(store.type === 'sqlite' ? withTarget(store.file) : []).flatMap((file) =>
      basename(dirname(file)) === '.treadle' ? [] : [`${exactGlob(file)}*`, `${exactGlob(file)}*/**`],
    ),
  ];
  return own.length === 0
    ? rules
    : { ...rules, paths: { ...rules.paths, deny: [...(rules.paths?.deny ?? []), ...own] } };
}

/** A file, and what it is a link to. The store is open by now, unless a call is only explained. */
function withTarget(file: string): readonly string[] {
  try {
    return [...new Set([file, realpathSync(file)])];
  } catch {
    return [file];
  }
}

/** Rules that ask about everything that the given ones do not deny. */
function askingRules(rules: PolicyRules): PolicyRules {
  const entries = Object.entries(rules.tools ?? {}).map(([name, verdict]) => [
    name,
    verdict === 'deny' ? verdict : 'ask',
  ]);
  return { ...rules, tools: { '*': 'ask', ...Object.fromEntries(entries) } };
}

/** Explains why people are asked about a call. */
export function requestExplainer(made: RulePolicy, tools: () => readonly Tool[], colours: Colours): ExplainRequest {
  return async ({ call: { name, arguments: text } }) => {
    const tool = tools().find((one) => one.name === name);
    const judged = tool ? await judgedCall(tool, text) : { call: { name } };
    if ('problem' in judged) return [judged.problem];
    return explanationLines(await made.explain(judged.call, judgedWith.get(made)), colours);
  };
}

/** Whether the command can apply the rules that a run has recorded. */
export function isApplicable(rules: unknown): boolean {
  return checkRules(rules).problems.length === 0;
}
