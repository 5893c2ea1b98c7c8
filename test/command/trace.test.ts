import { agentTool, runLoop, tool, type FollowedRun } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { expect, test } from 'vitest';
import { runsFixture } from './runs-fixture.ts';

const fixture = runsFixture();

const echo = tool({ name: 'echo', description: 'Repeats', effect: 'pure', execute: () => 'said' });
const fail = tool({ name: 'fail', description: 'Fails', execute: () => Promise.reject(new Error('broken')) });
/** Times differ from run to run. */
const withoutTimes = (text: string): string =>
  text.replace(/\d+(\.\d+)? (ms|s)\b/g, 'TIME').replace(/20\d\d-\S+ \S+/, 'THEN');

async function stored(): Promise<void> {
  const helper = agentTool({
    name: 'helper',
    description: 'Helps',
    model: scriptedModel([{ calls: [{ name: 'echo' }] }, 'Helped.']),
    tools: [echo],
  });
  const calls = [{ name: 'echo' }, { name: 'fail' }, { name: 'helper', arguments: { task: 'help' } }];
  const model = scriptedModel([{ calls }, 'Done.']);
  await fixture.inStore((journal) =>
    runLoop({
      runId: 'run_abc',
      input: 'go',
      model,
      tools: [echo, fail, helper],
      journal,
      task: 'a task',
      principal: { subject: 'k', tenant: 'acme', scopes: [] },
    }),
  );
}

test('shows a run as a tree, with its child runs and what failed', async () => {
  await stored();
  const { code, stdout } = await fixture.treadle('trace', 'abc');
  expect(code).toBe(0);
  expect(withoutTimes(stdout)).toBe(`run_abc  completed
  trace    ${/[0-9a-f]{32}/.exec(stdout)![0]}
  model    scripted
  tenant   acme
  task     a task
  started  THEN
  took     TIME, 2 turns, 4 calls; 40 in, 20 out

├─ turn 1: TIME
│  ├─ model scripted: TIME, tool-calls, 10 in, 5 out
│  ├─ call echo: TIME
│  ├─ ! call fail: TIME, execution_failed
│  └─ call helper: TIME
│     └─ run run_abc.t1.tool.2: completed
│        ├─ turn 1: TIME
│        │  ├─ model scripted: TIME, tool-calls, 10 in, 5 out
│        │  └─ call echo: TIME
│        └─ turn 2: TIME
│           └─ model scripted: TIME, stop, 10 in, 5 out
└─ turn 2: TIME
   └─ model scripted: TIME, stop, 10 in, 5 out

1 failure
  entry 3: F-EXE tool, fail execution_failed, medium, retryable
`);
});

test('says that a run is interrupted if no process drives it', async () => {
  await stored();
  await fixture.inStore(async (store) => {
    const [first] = await store.read('run_abc');
    await store.append('run_killed', [
      { ...first!, event: { ...first!.event, runId: 'run_killed' } as FollowedRun['started'] },
    ]);
  });
  const { stdout } = await fixture.treadle('trace', 'killed');
  expect(stdout.split('\n', 1)).toEqual(['run_killed  interrupted']);
  expect(stdout).toContain('model scripted: interrupted\n');
});

test('prints JSON, and reports runs that do not exist', async () => {
  await stored();
  const { stdout } = await fixture.treadle('trace', 'abc', '--json');
  const trace = JSON.parse(stdout) as { children: unknown[]; failures: unknown[]; traceId: string };
  expect(trace).toMatchObject({ runId: 'run_abc', status: 'completed', turns: 2 });
  expect(trace.failures).toMatchObject([{ tool: 'fail' }]);
  expect(trace.children).toMatchObject([{ runId: 'run_abc.t1.tool.2', traceId: trace.traceId }]);
  const unknown = await fixture.treadle('trace', 'zzz');
  expect([unknown.code, unknown.stderr]).toEqual([2, expect.stringContaining('zzz')]);
});
