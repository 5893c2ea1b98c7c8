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
import { descendantsOf, readRun, shortId, storedCommand } from './store-access.ts';

export const traceCommand: Command = storedCommand('trace RUN', {
  summary: SUMMARIES.trace,
  flags: { json: { type: 'switch', help: 'Print JSON, with the child runs' } },
  details:
    'A turn has the model call and the calls of its reply, each with the time that it took; "!" marks what failed. A call that\n' +
    'started a child run is followed by that run. Texts are not shown: "treadle runs show" has them.',
  examples: ['treadle trace 1a2b', 'treadle trace 1a2b --json | jq .failures'],
  async run({ store, args, values, print, colours, io }) {
    const { summary } = await readRun(store, args[0]!);
    const traces = new Map<string, Trace>();
    for (const { runId } of [summary, ...(await descendantsOf(store, summary.runId))]) {
      traces.set(runId, await traceIn(store, runId));
    }
    const root = traces.get(summary.runId)!;
    if (values.json) {
      const children = [...traces.values()].filter((trace) => trace !== root);
      return print(JSON.stringify({ ...root, children }, null, 2));
    }
    const layout = { colours, width: io.stdout.columns ?? 120 };
    print(heading(root, colours), treeLines(root, traces, layout), failureLines(root, layout));
  },
});

async function traceIn(store: RunStore, runId: string): Promise<Trace> {
  const trace = await traceOf(await store.read(runId));
  if (trace) return trace;
  throw new CommandError(
    `The entries of run ${shortId(runId)} do not replay, so it has no trace. "treadle runs replay ${shortId(runId)}" says where.`,
  );
}

interface Layout {
  readonly colours: Colours;
  readonly width: number;
}

function heading(trace: Trace, colours: Colours): readonly string[] {
  const { runId, traceId, status, model, agent, tenant, task, session, startedAt, durationMs, turns, calls, usage } =
    trace;
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

function treeLines(root: Trace, traces: ReadonlyMap<string, Trace>, { colours, width }: Layout): readonly string[] {
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

function stepNodes({ steps }: Trace, traces: ReadonlyMap<string, Trace>): readonly Node[] {
  return steps.map((step) => ({
    text: `turn ${step.turn}: ${stepTime(step)}`,
    below: [...step.work.map(workNode), ...step.actions.map((action) => actionNode(action, traces))],
  }));
}

function stepTime({ startedAt, endedAt }: TraceStep): string {
  return endedAt === undefined ? 'open' : durationText(endedAt - startedAt);
}

function workNode({ kind, name, startedAt, endedAt, problem, reply, attempts = [] }: TraceWork): Node {
  const took = endedAt === undefined ? 'running' : durationText(endedAt - startedAt);
  const facts = [
    took,
    ...(reply ? [reply.finish, usageText(reply.usage)] : []),
    ...(attempts.length > 1 ? [`${attempts.length} attempts`] : []),
    ...(problem ? [problem] : []),
  ];
  const isBad = problem !== undefined;
  return { text: `${isBad ? '! ' : ''}${kind} ${name}: ${facts.join(', ')}`, isBad, below: [] };
}

function actionNode(action: TraceAction, traces: ReadonlyMap<string, Trace>): Node {
  const { tool, status, ranMs, waitedMs, errorType, attempts, child, endedAt } = action;
  const facts = [
    ...(endedAt === undefined ? [status] : []),
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
    below: run ? [{ text: `run ${shortId(run.runId)}: ${run.status}`, below: stepNodes(run, traces) }] : [],
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
