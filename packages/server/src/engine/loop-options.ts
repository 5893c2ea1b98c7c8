import type { LoopOptions } from '@treadle/core';

/** Options of the library that the server passes to every run. */
export type EveryRunOptions = Pick<LoopOptions, OptionName>;
/** Options of the library that the server passes to every new run. */
export type NewRunOptions = Pick<LoopOptions, RuleName>;

type OptionName =
  | 'guardrails'
  | 'resultFilters'
  | 'exposes'
  | 'verifyAnswer'
  | 'audit'
  | 'summariser'
  | 'holdIdleMs'
  | 'tracing';
type RuleName = 'maxCallsPerTurn' | 'crashLimit' | 'repeatLimit' | 'maxResultChars' | 'narrow';

type Source<Name> = Name extends OptionName
  ? 'option'
  : Name extends RuleName
    ? 'rule'
    : 'request' | 'server' | { readonly why: string };

/**
 * Where each option of the library comes from in the runs of the server. The compiler demands a decision for each new option.
 *
 * - `request`: the request, its conversation or its caller.
 * - `server`: the server itself, also by options of its own, such as `maxDurationMs` or `policy`.
 * - `option`: the option of `treadleServer` with this name, for every run, also if it is resumed.
 * - `rule`: the same for runs that are new. They keep it.
 * - Otherwise why the server does not offer it.
 */
const LOOP_OPTIONS: { readonly [Name in keyof Required<LoopOptions>]: Source<Name> } = {
  input: 'request',
  answered: 'request',
  instructions: 'request',
  parallel: 'request',
  maxParallel: 'request',
  settings: 'request',
  principal: 'request',
  toolChoice: 'request',
  allowedTools: 'request',
  output: 'request',
  outputCheck: 'request',
  outputText: 'request',
  definition: 'request',
  compaction: 'request',
  model: 'request',
  tools: 'request',
  carried: 'request',
  memory: 'request',
  session: 'request',
  task: 'request',
  trace: 'request',
  labels: 'request',

  maxTurns: 'server',
  errorLimit: 'server',
  toolTimeoutMs: 'server',
  limits: 'server',
  closingTurn: 'server',
  runId: 'server',
  policy: 'server',
  ledger: 'server',
  context: 'server',
  journal: 'server',
  signal: 'server',
  onItem: 'server',
  durableItems: 'server',
  beforePause: 'server',
  canAnswer: 'server',
  kept: 'server',
  startRun: 'server',
  killProcess: 'server',
  matchPattern: 'server',
  agents: 'server',

  guardrails: 'option',
  resultFilters: 'option',
  exposes: 'option',
  verifyAnswer: 'option',
  audit: 'option',
  summariser: 'option',
  holdIdleMs: 'option',
  tracing: 'option',

  maxCallsPerTurn: 'rule',
  crashLimit: 'rule',
  repeatLimit: 'rule',
  maxResultChars: 'rule',
  narrow: 'rule',

  finish: { why: 'A text that the model is asked about again was sent to the client as the answer.' },
  retryLater: { why: 'The client of a request that failed was told so, and sends it again.' },
  prepareTurn: { why: 'The request names the model, the tools and the instructions.' },
  models: { why: 'Only prepareTurn chooses them.' },
  parent: { why: 'The runs of requests have none.' },
  resume: { why: 'The server knows which runs have started.' },
  onTurnStart: { why: 'What happens in a run is sent to its client, and in the log and the metrics.' },
  onToolCall: { why: 'As onTurnStart.' },
  onToolResult: { why: 'As onTurnStart.' },
  onFinish: { why: 'As onTurnStart. Webhooks tell other programs.' },
  clock: { why: 'Leases and deadlines of all servers with a store have to agree.' },
};

/** Those of the options that are set. */
export function everyRunOptions(options: EveryRunOptions): EveryRunOptions {
  return optionsFrom(options, 'option');
}

/** Those of the options that are set. */
export function newRunOptions(options: NewRunOptions): NewRunOptions {
  return optionsFrom(options, 'rule');
}

function optionsFrom<T extends object>(options: T, source: 'option' | 'rule'): T {
  const names = Object.entries(LOOP_OPTIONS).flatMap(([name, from]) => (from === source ? name : []));
  return Object.fromEntries(
    Object.entries(options).filter(([name, value]) => names.includes(name) && value !== undefined),
  ) as T;
}
