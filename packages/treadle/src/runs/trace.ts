import type { RunStore } from '@treadle/core';
import {
  traceOf,
  type Trace,
  type TraceAction,
  type TraceFailure,
  type TraceStep,
  type TraceWork,
} from '@treadle/core/trace';
import { CommandError, SUMMARIES, type Command } from '../command-line/command.ts';
import type { Colours } from '../terminal/colours.ts';
import { exactLine, oneLine } from '../terminal/printable.ts';
import { durationText, plural, timestampText, usageText } from '../terminal/quantities.ts';
import { descendantsOf, displayStatus, readRun, shortId, storedCommand, type DisplayStatus } from './store-access.ts';

export const traceCommand: Command = storedCommand('trace RUN', {
  summary: SUMMARIES.trace,
  flags: { json: { type: 'switch', help: 'Print JSON, with the child runs' } },
  details:
    'A turn has the model call and the calls of its reply, each with the time that it took; "!" marks what failed. A call that\n' +
    'started a child run is followed by that run. Texts are not shown: "treadle runs show" has them.',
  examples: ['treadle trace 1a2b', 'treadle trace 1a2b --json | jq .failures'],
  async run({ store, args, values, print, colours, io }) {
    const { summary } = await readRun(store, args[0]!);
    const shown = new Map<string, ShownTrace>();
    for (const run of [summary, ...(await descendantsOf(store, summary.runId))]) {
      shown.set(run.runId, { trace: await traceIn(store, run.runId), status: await displayStatus(store, run) });
    }
    const root = shown.get(summary.runId)!;
    if (values.json) {
      const children = [...shown.values()].filter((one) => one !== root).map(({ trace }) => trace);
      return print(JSON.stringify({ ...root.trace, children }, null, 2));
    }
    const layout = { colours, width: io.stdout.columns ?? 120 };
    print(heading(root, colours), treeLines(root, shown, layout), failureLines(root.trace, layout));
  },
});

async function traceIn(store: RunStore, runId: string): Promise<Trace> {
  const trace = await traceOf(await store.read(runId));
  if (trace) return trace;
  throw new CommandError(
    `The entries of run ${shortId(runId)} do not replay, so it has no trace. "treadle runs replay ${shortId(runId)}" says where.`,
  );
}

/** A trace, and what the store knows of its run: whether a process drives it. */
interface ShownTrace {
  readonly trace: Trace;
  readonly status: DisplayStatus;
}

interface Layout {
  readonly colours: Colours;
  readonly width: number;
}

function heading({ trace, status }: ShownTrace, colours: Colours): readonly string[] {
  const { runId, traceId, model, agent, tenant, task, session, startedAt, durationMs, turns, calls, usage } = trace;
  const rows = [
    ['trace', traceId],
    ['model', agent === undefined ? model : `${model}, agent ${agent}`],
    ...(tenant === undefined ? [] : [['tenant', tenant]]),
    ...(task === undefined ? [] : [['task', task]]),
    ...(session === undefined ? [] : [['session', session]]),
    ['started', timestampText(startedAt)],
    ['took', `${durationText(durationMs)}, ${plural(turns, 'turn')}, ${plural(calls, 'call')}; ${usageText(usage)}`],
  ];
  return [
    `${colours.bold(runId)}  ${status}`,
    ...rows.map(([name, value]) => `  ${colours.dim(name!.padEnd(7))}  ${exactLine(value!)}`),
    '',
  ];
}

/** A line of the tree, with what is below it. */
interface Node {
  readonly text: string;
  readonly isBad?: boolean;
  readonly below: readonly Node[];
}

function treeLines(
  root: ShownTrace,
  traces: ReadonlyMap<string, ShownTrace>,
  { colours, width }: Layout,
): readonly string[] {
  const lines: string[] = [];
  const add = (nodes: readonly Node[], indent: string): void => {
    for (const [index, { text, isBad, below }] of nodes.entries()) {
      const isLast = index === nodes.length - 1;
      const line = `${indent}${isLast ? '└─' : '├─'} ${oneLine(text, Math.max(20, width - indent.length - 3))}`;
      lines.push(isBad ? colours.red(line) : line);
      add(below, `${indent}${isLast ? '   ' : '│  '}`);
    }
  };
  add(stepNodes(root, traces), '');
  return lines;
}

function stepNodes({ trace, status }: ShownTrace, traces: ReadonlyMap<string, ShownTrace>): readonly Node[] {
  const open = status === 'interrupted' ? status : 'running';
  return trace.steps.map((step) => ({
    text: `turn ${step.turn}: ${stepTime(step)}`,
    below: [
      ...step.work.map((work) => workNode(work, open)),
      ...step.actions.map((action) => actionNode(action, open, traces)),
    ],
  }));
}

function stepTime({ startedAt, endedAt }: TraceStep): string {
  return endedAt === undefined ? 'open' : durationText(endedAt - startedAt);
}

/** `open`: what it is if it has not ended. */
function workNode({ kind, name, startedAt, endedAt, problem, reply, attempts = [] }: TraceWork, open: string): Node {
  const took = endedAt === undefined ? open : durationText(endedAt - startedAt);
  const facts = [
    took,
    ...(reply ? [reply.finish, usageText(reply.usage)] : []),
    ...(attempts.length > 1 ? [`${attempts.length} attempts`] : []),
    ...(problem ? [problem] : []),
  ];
  const isBad = problem !== undefined;
  return { text: `${isBad ? '! ' : ''}${kind} ${name}: ${facts.join(', ')}`, isBad, below: [] };
}

function actionNode(action: TraceAction, open: string, traces: ReadonlyMap<string, ShownTrace>): Node {
  const { tool, status, ranMs, waitedMs, errorType, attempts, child, endedAt } = action;
  const facts = [
    ...(endedAt === undefined ? [status === 'running' ? open : status] : []),
    ...(ranMs > 0 || waitedMs === 0 ? [durationText(ranMs)] : []),
    ...(waitedMs > 0 ? [`waited ${durationText(waitedMs)}`] : []),
    ...(attempts === undefined ? [] : [`began ${attempts} times`]),
    ...(errorType === undefined ? [] : [errorType]),
  ];
  const isBad = errorType !== undefined;
  const run = child === undefined ? undefined : traces.get(child);
  return {
    text: `${isBad ? '! ' : ''}call ${tool}: ${facts.join(', ')}`,
    isBad,
    below: run ? [{ text: `run ${shortId(run.trace.runId)}: ${run.status}`, below: stepNodes(run, traces) }] : [],
  };
}

function failureLines({ failures }: Trace, { colours, width }: Layout): readonly string[] {
  if (failures.length === 0) return [];
  const rows = failures.map((failure) => `  ${oneLine(failureText(failure), width - 2)}`);
  return ['', colours.bold(plural(failures.length, 'failure')), ...rows];
}

function failureText(failure: TraceFailure): string {
  const { seq, code, category, type, severity, retryable, tool, effect, recovery } = failure;
  const what = tool ?? effect ?? 'run';
  const after = recovery ? `, recovered by ${recovery.by} (entry ${recovery.seq})` : retryable ? ', retryable' : '';
  return `entry ${seq}: ${code} ${category}, ${what} ${type}, ${severity}${after}`;
}
