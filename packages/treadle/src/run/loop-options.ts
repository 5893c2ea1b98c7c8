import type { LoopOptions } from '@treadle/core';
import type { Hooks } from '../config/hooks.ts';

/** Options that the session or the message gives to every run. */
type RunName = 'model' | 'tools' | 'agents' | 'policy' | 'ledger' | 'kept' | 'runId' | keyof Hooks;
/** Options that they give to new runs. */
type NewName =
  | 'input'
  | 'instructions'
  | 'maxTurns'
  | 'errorLimit'
  | 'toolTimeoutMs'
  | 'closingTurn'
  | 'finish'
  | 'output'
  | 'outputText'
  | 'definition'
  | 'settings'
  | 'limits'
  | 'parallel'
  | 'maxCallsPerTurn'
  | 'repeatLimit'
  | 'principal'
  | 'carried'
  | 'narrow'
  | 'session'
  | 'task'
  | 'trace'
  | 'labels'
  | 'toolChoice'
  | 'compaction';

/** Options that the driver sets, and those that the command does not offer. */
export type NotGiven = Exclude<keyof LoopOptions, RunName | NewName>;

type Source<Name> = Name extends RunName ? 'run' : Name extends NewName ? 'new' : 'driver' | { readonly why: string };

/**
 * Where each option of the library comes from in the runs of the command. The compiler demands a decision for each new option.
 *
 * - `run`: the session or the message gives it, also for a run that is resumed.
 * - `new`: the same for runs that are new. They keep it.
 * - `driver`: `driveRun` sets it.
 * - Otherwise why the command does not offer it.
 */
const LOOP_OPTIONS: { readonly [Name in keyof Required<LoopOptions>]: Source<Name> } = {
  model: 'run',
  tools: 'run',
  agents: 'run',
  policy: 'run',
  ledger: 'run',
  kept: 'run',
  runId: 'run',
  guardrails: 'run',
  resultFilters: 'run',
  verifyAnswer: 'run',
  audit: 'run',
  tracing: 'run',

  input: 'new',
  instructions: 'new',
  maxTurns: 'new',
  errorLimit: 'new',
  toolTimeoutMs: 'new',
  closingTurn: 'new',
  finish: 'new',
  output: 'new',
  outputText: 'new',
  definition: 'new',
  settings: 'new',
  limits: 'new',
  parallel: 'new',
  maxCallsPerTurn: 'new',
  repeatLimit: 'new',
  principal: 'new',
  carried: 'new',
  narrow: 'new',
  session: 'new',
  task: 'new',
  trace: 'new',
  labels: 'new',
  toolChoice: 'new',
  compaction: 'new',

  journal: 'driver',
  signal: 'driver',
  onItem: 'driver',
  durableItems: 'driver',
  beforePause: 'driver',
  killProcess: 'driver',
  matchPattern: 'driver',

  answered: { why: 'A message does not begin with calls.' },
  memory: { why: 'A message has that of the one before, in carried.' },
  maxParallel: { why: 'Calls run in parallel as far as their tools allow.' },
  crashLimit: { why: 'The default fits.' },
  maxResultChars: { why: 'The default fits.' },
  holdIdleMs: { why: 'The default fits.' },
  allowedTools: { why: 'The model decides. --tools says which tools it has.' },
  outputCheck: { why: 'The answer is printed when it is checked, so it can be repaired.' },
  summariser: { why: 'The model of the run knows best what it needs.' },
  retryLater: { why: 'A person waits for the answer.' },
  prepareTurn: { why: 'Turns are prepared by programs. [hooks] has what checks and records.' },
  exposes: { why: 'The policy and the tools say what calls expose.' },
  models: { why: 'Only prepareTurn chooses them.' },
  parent: { why: 'The runs of messages have none.' },
  resume: { why: '"treadle runs resume" resumes a run.' },
  context: { why: 'The tools of the command need none.' },
  canAnswer: { why: 'A question that nobody can answer now pauses the run, which is resumed with the answer.' },
  startRun: { why: 'The command ends with its run.' },
  onTurnStart: { why: 'The transcript and the log are written from the items.' },
  onToolCall: { why: 'As onTurnStart.' },
  onToolResult: { why: 'As onTurnStart.' },
  onFinish: { why: 'As onTurnStart.' },
  clock: { why: 'Leases and deadlines of all processes with a store have to agree.' },
};

/** Those of the options that a run needs again when it is resumed. */
export function optionsOfEveryRun<Options extends object>(options: Options): Pick<Options, RunName & keyof Options> {
  const isOfEvery = ([name]: [string, unknown]): boolean => LOOP_OPTIONS[name as keyof LoopOptions] === 'run';
  return Object.fromEntries(Object.entries(options).filter(isOfEvery)) as never;
}
