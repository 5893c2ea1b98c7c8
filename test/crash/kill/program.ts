/**
 * The process that is killed: `node --conditions=treadle-source program.ts FOLDER STORE LINES`. It starts or resumes the run in
 * that folder until it ends or pauses, and answers what the run waits for. It prints a line for each step, and kills
 * itself after LINES of them (0: never).
 */
import { agentTool, replay, runLoop, tool, waiting, type Answer, type Waiting } from '@treadle/core';
import { policy } from '@treadle/core/policy';
import { openStore } from '@treadle/store';
import { acting, report, reportingModel, reportingStore, storeUrl, toolLedger, WHAT } from './reporting.ts';

/** Verifies by the ledger whether it acted. If it had only started to, the effect is unknown. */
const wire = acting('wire', 'once', {
  verify(input, context) {
    const found = toolLedger.read().filter(({ key }) => key === context.key);
    report(`verify ${context.key}`);
    if (found.length === 0) return { type: 'not-done' };
    const done = found.some(({ type }) => type === 'end');
    return done ? { type: 'done', result: `wire ${(input as { what: string }).what}` } : { type: 'unknown' };
  },
});

const pick = tool({ name: 'pick', description: 'pick', input: WHAT });
const [look, put, order, remove] = [
  acting('look', 'pure'),
  acting('put', 'idempotent'),
  acting('order', 'once'),
  acting('remove', 'once'),
];

/** Its rules hold in the child run too. */
const rules = policy({ autonomy: 3, tools: { remove: 'ask' }, rate: { second: 1000, minute: 1000 } });

const calling = (
  ...calls: readonly (readonly [string, string])[]
): { calls: readonly (readonly [string, unknown])[] } => ({
  calls: calls.map(([name, what]) => [name, { what }]),
});

const helper = agentTool({
  name: 'helper',
  description: 'Helps',
  model: reportingModel({
    't1.model.0': calling(['order', 'inside'], ['put', 'inside'], ['remove', 'inside']),
    't2.model.0': calling(['wire', 'inside'], ['pick', 'inside']),
    't3.model.0': calling(['order', 'at last']),
    't4.model.0': 'Helped.',
  }),
  tools: [order, put, remove, wire, pick],
});

const model = reportingModel({
  't1.model.0': {
    text: 'All at once.',
    calls: [
      ['helper', { task: 'Help.' }],
      ...calling(['look', 'a'], ['put', 'a'], ['order', 'a'], ['wire', 'a']).calls,
    ],
  },
  't2.model.0': calling(['remove', 'b'], ['order', 'b'], ['pick', 'b'], ['order', 'c']),
  't3.model.0': calling(['wire', 'd'], ['put', 'd']),
  't4.model.0': 'All is done.',
});

function answerTo({ type, effect, ...wait }: Waiting): readonly Answer[] {
  if (type === 'client') return [{ type: 'result', effect, content: 'picked' }];
  return 'digest' in wait ? [{ type: 'approval', effect, digest: wait.digest, approved: true }] : [];
}

const store = await openStore(storeUrl);
const journal = reportingStore(store);
const tools = [helper, look, put, order, wire, remove, pick];
const options = { model, tools, policy: rules, journal, runId: 'run', maxParallel: 3 };
const entries = await store.read('run');
const answers = waiting(replay(entries).state).flatMap(answerTo);
const result = await runLoop(entries.length === 0 ? { ...options, input: 'Do it.' } : { ...options, answers });
await store.close();
report(result.outcome ? 'ended' : 'paused');
