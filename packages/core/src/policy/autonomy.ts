import type { Autonomy } from '../machine/narrowing.ts';
import { whereTo } from './paths.ts';
import { onText, placeText, sessionText } from './places.ts';
import {
  ALLOWED,
  type CallFacts,
  type ListJudges,
  type Opinion,
  type Rule,
  type RuleContext,
  type TouchedCommand,
  type TouchedUrl,
} from './rule.ts';
import type { PolicyRules } from './rules.ts';
import { isConfined } from './sandbox.ts';
import { placedPath } from './applied.ts';

/*
 * Autonomy: how far a run may act without being asked. Reads that the list of paths does not allow are asked about, except at
 * level 3. At level 2, commands in a sandbox that promises what the rules require are not asked about. An `allow` entry for the
 * tool satisfies an ask of this rule, and so does a grant for the rest of the run.
 */

/** What a run may do at most, by level. */
export interface LevelLimits {
  readonly turns: number;
  readonly calls: number;
  /** Different paths that calls may write. */
  readonly files: number;
}

const LIMITS: Readonly<Record<Autonomy, LevelLimits>> = {
  0: { turns: 5, calls: 10, files: 0 },
  1: { turns: 20, calls: 50, files: 10 },
  2: { turns: 50, calls: 200, files: 30 },
  3: { turns: 100, calls: 500, files: 50 },
};

const NAMES: Readonly<Record<Autonomy, string>> = { 0: 'read-only', 1: 'supervised', 2: 'bounded', 3: 'full' };

/** The level of the rules, or the lower one that the run is narrowed to. */
export function levelOf({ autonomy = 1 }: PolicyRules, narrowed: Autonomy | undefined): Autonomy {
  return narrowed !== undefined && narrowed < autonomy ? narrowed : autonomy;
}

export function levelLimits(level: Autonomy): LevelLimits {
  return LIMITS[level];
}

export function autonomyRule(rules: PolicyRules, judges: ListJudges): Rule {
  return {
    name: 'autonomy',
    judge(facts, context) {
      if (facts.clients) return undefined;
      const level = levelOf(rules, context.autonomy);
      const at = `at level ${level} (${NAMES[level]})`;
      const first = firstTouch(facts, (type) => level === 0 && type !== 'read');
      if (first !== undefined) return { type: 'deny', reason: `${at} only reads are allowed, and it would ${first}` };
      const excess = tooManyFiles(facts, context, LIMITS[level].files);
      if (excess !== undefined) return { type: 'deny', reason: `${at} ${excess}` };
      if (level === 3 || (level === 2 && isConfined(rules, facts))) return ALLOWED;
      const asked = level === 2 ? uncovered(facts) : uncoveredReadOrAct(facts);
      if (asked === undefined) return ALLOWED;
      const where = facts.call.sandbox ? ', inside a sandbox' : '';
      return { type: 'ask', reason: `${at} it is asked about, because it would ${asked}${where}` } satisfies Opinion;
    },
    saw(facts, context) {
      const level = levelOf(rules, context.autonomy);
      const touched = firstTouch(facts, () => true);
      const would = facts.clients
        ? 'the client executes it'
        : touched === undefined
          ? 'it touches nothing'
          : `it would ${touched}`;
      return `level ${level} (${NAMES[level]}); ${would}${sandboxText(facts.call.sandbox)}`;
    },
  };

  function uncoveredReadOrAct(facts: CallFacts): string | undefined {
    const path = facts.paths.find((one) => one.type === 'read' && judges.path(one)?.type !== 'allow');
    const acts = firstTouch(facts, (type) => type !== 'read' && type !== 'other');
    return acts ?? uncoveredOther(facts) ?? (path && `read ${whereTo(path)}`);
  }

  function uncoveredOther({ unknown, places, sessions }: CallFacts): string | undefined {
    if (unknown) return UNDECLARED;
    const place = places.find((one) => judges.place(one)?.type !== 'allow');
    if (place) return `use ${placeText(place)}`;
    const session = sessions.find((one) => judges.session(one)?.type !== 'allow');
    return session && `use ${sessionText(session)}`;
  }

  function uncovered(facts: CallFacts): string | undefined {
    const command = facts.commands.find((one) => judges.command(one)?.type !== 'allow');
    if (command) return runText(command);
    const path = facts.paths.find((one) => judges.path(one)?.type !== 'allow');
    if (path) return `${path.type} ${whereTo(path)}`;
    const url = facts.urls.find((one) => judges.url(one)?.type !== 'allow');
    return url ? requestText(url) : uncoveredOther(facts);
  }
}

/** The first thing of some types that a call would touch, in words. */
function firstTouch(
  { commands, paths, urls, places, sessions, unknown }: CallFacts,
  isMeant: (type: 'read' | 'write' | 'command' | 'url' | 'other') => boolean,
): string | undefined {
  const [command] = commands;
  if (command && isMeant('command')) return runText(command);
  const path = paths.find(({ type }) => isMeant(type));
  if (path) return `${path.type} ${whereTo(path)}`;
  const [url] = urls;
  if (url && isMeant('url')) return requestText(url);
  if (!isMeant('other')) return undefined;
  if (unknown) return UNDECLARED;
  const [[place], [session]] = [places, sessions];
  return place ? `use ${placeText(place)}` : session && `use ${sessionText(session)}`;
}

const UNDECLARED = 'touch something that its tool does not declare';

function runText({ command, on }: TouchedCommand): string {
  return `run ${JSON.stringify(command)}${onText(on)}`;
}

function requestText({ given, on }: TouchedUrl): string {
  return `request ${JSON.stringify(given)}${onText(on)}`;
}

function sandboxText(promises: readonly string[] = []): string {
  return promises.length === 0 ? '' : `, inside a sandbox that promises ${promises.join(', ')}`;
}

function tooManyFiles({ paths }: CallFacts, { written = [] }: RuleContext, limit: number): string | undefined {
  const files = new Set(written);
  const before = files.size;
  for (const { type, given, on } of paths) if (type === 'write') files.add(placedPath(given, on));
  if (files.size <= limit || files.size === before) return undefined;
  return `a run may modify ${limit} files, and has modified ${before}. Change files that it has modified already.`;
}
