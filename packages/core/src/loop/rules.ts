import { TreadleError } from '../errors.ts';
import type { Model } from '../model.ts';
import { describe } from '../tools/schema.ts';
import type { Tool } from '../tools/tool.ts';
import { isKnown } from './fits.ts';
import type { CompactionOptions, LoopOptions } from './options.ts';
import type { AgentRules, CompactionRules, Rules } from './pinned.ts';

/** What the options come to, with the defaults of today. Throws `invalid-options` for what can never work. */
export function rulesOf(options: LoopOptions, agent?: AgentRules): Rules {
  const { toolChoice = 'auto', allowedTools, tools = [] } = options;
  const rules: Rules = {
    wording: 1,
    finish: agent ? 'output' : (options.finish ?? 'plain'),
    maxTurns: atLeast(1, 'maxTurns', options.maxTurns ?? 20),
    maxParallel: atLeast(1, 'maxParallel', options.maxParallel ?? 5),
    parallel: options.parallel ?? true,
    ...(options.maxCallsPerTurn !== undefined && {
      maxCallsPerTurn: atLeast(1, 'maxCallsPerTurn', options.maxCallsPerTurn),
    }),
    errorLimit: atLeast(0, 'errorLimit', options.errorLimit ?? 3),
    repeatLimit: atLeast(0, 'repeatLimit', options.repeatLimit ?? 3),
    maxResultChars: atLeast(1, 'maxResultChars', options.maxResultChars ?? 15_000),
    toolTimeoutMs: atLeast(1, 'toolTimeoutMs', options.toolTimeoutMs ?? 60_000),
    limits: limitsOf(options.limits),
    closingTurn: options.closingTurn ?? false,
    toolChoice,
    ...(allowedTools && { allowedTools: [...allowedTools] }),
    judged: options.policy !== undefined,
    ...(options.prepareTurn && { prepared: true }),
    ...(options.output && { output: describe('The output', options.output, 'invalid-options') }),
    ...(options.compaction && { compaction: compactionOf(options.compaction) }),
    ...(agent && { agent }),
  };
  if (!isToolChoice(toolChoice)) {
    throw invalid(`toolChoice is ${JSON.stringify(toolChoice)}. Use ${CHOICES.join(', ')} or { tool: name }`);
  }
  const demanded = typeof toolChoice === 'object' ? [toolChoice.tool] : [];
  for (const name of [...demanded, ...(allowedTools ?? [])]) {
    if (tools.some((tool) => tool.name === name)) continue;
    throw invalid(`"${name}" is named in toolChoice or allowedTools, but there is no such tool`);
  }
  if (toolChoice === 'required' && (allowedTools ?? tools).length === 0) {
    throw invalid('toolChoice is "required", but there is no tool to call. Give tools, or leave it out');
  }
  if (demanded.some((name) => allowedTools && !allowedTools.includes(name))) {
    throw invalid(`toolChoice demands "${demanded[0]}", which allowedTools leaves out`);
  }
  if (!isKnown(rules)) throw invalid(`finish is "${rules.finish}"; it can be "plain" or "confirm"`);
  return rules;
}

/** Whom a run may ask for a reply, itself or through tools that are runs of their own. */
export function askedBy({ model, models = [], summariser, tools = [] }: Asking): readonly Model[] {
  const inside = tools.flatMap(({ asks = [] }) => asks);
  return [model, ...models, ...(summariser ? [summariser] : []), ...inside];
}

type Asking = Pick<LoopOptions, 'model' | 'models' | 'summariser'> & { readonly tools?: readonly Tool[] };

/** A cost limit can be held only if everybody who is asked tells what it costs. Throws `invalid-options`. */
export function demandPrices({ cost }: Rules['limits'], options: Asking): void {
  if (cost === undefined) return;
  const unpriced = new Set(askedBy(options).flatMap(unpricedOf));
  if (unpriced.size === 0) return;
  const who = `${[...unpriced].join(', ')}, and no price is known for ${unpriced.size === 1 ? 'it' : 'them'}`;
  throw invalid(
    `limits.cost is set, but the run may ask ${who}, so the limit cannot be held. Give the model a "price", or limit tokens`,
  );
}

/** Of a model that asks others it is those who lack a price. */
function unpricedOf({ id, priced, asks }: Model): readonly string[] {
  if (priced === true) return [];
  const others = asks?.flatMap(unpricedOf) ?? [];
  return others.length > 0 ? others : [`"${id}"`];
}

/** Whether what a program gave is one of the choices. */
export function isToolChoice(choice: unknown): boolean {
  if (typeof choice === 'string') return CHOICES.includes(choice);
  return typeof (choice as { tool?: unknown } | undefined)?.tool === 'string';
}

const CHOICES: readonly string[] = ['auto', 'required', 'none'];

function compactionOf(compaction: true | CompactionOptions): CompactionRules {
  const { tokens, keepTurns = 3 } = compaction === true ? {} : compaction;
  return {
    ...(tokens !== undefined && { tokens: atLeast(1, 'compaction.tokens', tokens) }),
    keepTurns: atLeast(1, 'compaction.keepTurns', keepTurns),
  };
}

function limitsOf(limits: Rules['limits'] | undefined): Rules['limits'] {
  if (limits === undefined) return {};
  const given = Object.entries(limits).filter(([, value]) => value !== undefined);
  for (const [name, value] of given) {
    if (!['calls', 'tokens', 'cost', 'durationMs'].includes(name)) {
      throw invalid(`limits.${name} is not a limit; there are calls, tokens, cost and durationMs`);
    }
    if (!(typeof value === 'number' && value >= 0 && Number.isFinite(value))) {
      throw invalid(`limits.${name} is ${String(value)}. Give a number, or leave it out for no limit`);
    }
  }
  return Object.fromEntries(given);
}

function atLeast(least: number, name: string, value: number): number {
  if (Number.isSafeInteger(value) && value >= least) return value;
  throw invalid(`${name} is ${String(value)}. Give a whole number of at least ${least}`);
}

function invalid(what: string): TreadleError {
  return new TreadleError('invalid-options', `${what}.`);
}
