import { existsSync, mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { memoryJournal, runLoop, textOf, tool, type LoopOptions, type Tool } from '@treadle/core';
import { manualClock, scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { local } from '../local/local.ts';
import { backgroundTools, withBackground } from './background.ts';
import { bashTool } from './bash.ts';

let folder: string;
const ON_LINUX = process.platform === 'linux';

beforeEach(() => void (folder = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-background-')))));
afterEach(() => rmSync(folder, { recursive: true }));

type Step = readonly [name: string, input?: Readonly<Record<string, unknown>>];

const shellTools = (): readonly Tool[] => [withBackground(bashTool(local(folder))), ...backgroundTools()];

/** One call per turn, then the answer. */
function script(...steps: readonly Step[]): ScriptStep[] {
  return [...steps.map(([name, input = {}]) => ({ calls: [{ name, arguments: input }] })), 'Done.'];
}

/** The texts of the results of a run. */
async function results(options: Pick<LoopOptions, 'model' | 'tools'> & Partial<LoopOptions>): Promise<string[]> {
  const texts: string[] = [];
  await runLoop({
    ...(!('answers' in options) && { input: 'Go.' }),
    ...options,
    onItem: (item) => void (item.type === 'call-answered' && texts.push(textOf(item.result.content))),
  } as LoopOptions);
  return texts;
}

/** A zombie has ended. */
function isAlive(pid: number): boolean {
  const stat = `/proc/${pid}/stat`;
  if (!existsSync(stat)) return false;
  const text = readFileSync(stat, 'utf8');
  return text[text.lastIndexOf(')') + 2] !== 'Z';
}

const inBackground = (command: string): Step => ['bash', { command, background: true }];
const FIRST = 'bash-t1.0';

test('a command in the background is read, written to and stopped by its handle', async () => {
  const model = scriptedModel(
    script(
      inBackground('echo "pid $$"; while read -r line; do echo "got $line"; done; sleep 1000'),
      ['background_read', { handle: FIRST, wait_ms: 10_000 }],
      ['background_write', { handle: FIRST, text: 'one\n' }],
      ['background_read', { handle: FIRST, wait_ms: 10_000 }],
      ['background_read', { handle: FIRST, offset: 0 }],
      ['background_read', { handle: FIRST }],
      ['background_list'],
      ['background_write', { handle: FIRST, text: 'two\n', end: true }],
      ['background_read', { handle: FIRST, wait_ms: 10_000 }],
      ['background_stop', { handle: FIRST }],
      ['background_stop', { handle: FIRST }],
      ['background_write', { handle: FIRST, text: 'x' }],
      ['background_read', { handle: FIRST }],
    ),
  );
  const [started, pid, written, one, all, nothing, list, , two, stopped, again, late, result] = await results({
    model,
    tools: shellTools(),
  });
  expect(started).toMatch(/^Started in the background as bash-t1\.0\./);
  expect(pid).toMatch(/^pid \d+\n\[bash-t1\.0 is running; it has printed \d+ characters\]$/);
  expect(written).toBe('Written to bash-t1.0.');
  expect(one).toMatch(/^got one\n/);
  expect(all).toMatch(/^pid \d+\ngot one\n/);
  expect(nothing).toMatch(/^\[bash-t1\.0 is running/);
  expect(list).toMatch(/^bash-t1\.0: running for \d+ s; \d+ characters of output; bash \{"command":"echo/);
  expect(two).toMatch(/^got two\n/);
  expect(stopped).toMatch(/^bash-t1\.0 was stopped\./);
  expect(again).toMatch(/^bash-t1\.0 had already ended\./);
  expect(late).toContain('bash-t1.0 has ended. Read its result.');
  expect(result).toContain('[bash-t1.0 has failed. Result:]');
  expect(isAlive(Number(/\d+/.exec(pid!)![0]))).toBe(false);
});

test('the result of a command is read when it has ended', async () => {
  const read = ['background_read', { handle: FIRST, wait_ms: 10_000 }] as const;
  const model = scriptedModel(script(inBackground('echo quick; exit 3'), read, read, read));
  const texts = await results({ model, tools: shellTools() });
  expect(texts.join('\n')).toContain('quick\n[bash-t1.0 ');
  expect(texts.at(-1)).toBe('[bash-t1.0 has failed. Result:]\n[exit code 3]');
});

test.runIf(ON_LINUX)('it is killed when the run ends, and a handle from before a resume is gone', async () => {
  const journal = memoryJournal();
  let asked = 0;
  const ask = tool({
    name: 'ask',
    description: 'asks',
    touches: () => [],
    execute: async (_, context) => (asked++, context.ask('Go on?')),
  });
  const steps = script(
    inBackground('setsid sleep 1000 >/dev/null & echo $! > pid; echo started; wait'),
    ['background_read', { handle: FIRST, wait_ms: 10_000 }],
    ['ask'],
    ['background_list'],
    inBackground('sleep 1000'),
    ['background_read', { handle: FIRST }],
  );
  const tools = [...shellTools(), ask];
  const run = { tools, journal, runId: 'run' };
  const paused = await runLoop({ ...run, model: scriptedModel(steps), input: 'Go.' });
  const [wait] = paused.waiting;
  expect(asked).toBe(1);
  expect(isAlive(Number(readFileSync(join(folder, 'pid'), 'utf8')))).toBe(false);
  const answers = [{ type: 'answer', effect: wait!.effect, value: 'yes' }] as const;
  const texts = await results({ ...run, model: scriptedModel(steps.slice(3)), answers } as never);
  expect(texts.at(-3)).toMatch(
    /^Nothing runs in the background\. Anything that was started before was stopped when the run paused/,
  );
  expect(texts.at(-1)).toContain(
    'There is no job "bash-t1.0" in the background. If you started it, it was stopped when the run paused',
  );
  expect(texts.at(-1)).toContain('Jobs: bash-t5.0.');
});

/** Reports what it is given, and works until it is stopped. */
function slowTool(): Tool {
  return tool({
    name: 'slow',
    description: 'works',
    input: z.object({ what: z.string() }),
    touches: ({ what }) => [{ type: 'read', path: what }],
    timeoutMs: 1,
    async *execute({ what }, { signal }) {
      yield { working: what };
      await new Promise((done) => signal.addEventListener('abort', done));
    },
  });
}

test('any tool can run in the background, as often as the limit allows, without its time limit', async () => {
  const slow = withBackground(slowTool());
  expect(slow.touches!({ what: 'x', background: true })).toEqual([{ type: 'read', path: 'x' }]);
  expect(slow.parameters['properties']).toMatchObject({ what: {}, background: { type: 'boolean' } });
  const start = ['slow', { what: 'a', background: true }] as const;
  const [first, ...others] = await results({
    model: scriptedModel([
      ...script(
        start,
        ['background_read', { handle: 'slow-t1.0' }],
        ['background_write', { handle: 'slow-t1.0', text: 'x' }],
        ['slow', { what: 5, background: true }],
        ['slow', { what: 'x', background: 'yes' }],
        ['slow', { what: 'x' }],
      ).slice(0, -1),
      {
        calls: Array.from({ length: 8 }, (_, index) => ({
          name: 'slow',
          arguments: { what: `${index}`, background: true },
        })),
      },
      'Done.',
    ]),
    tools: [slow, ...backgroundTools()],
    maxParallel: 10,
    errorLimit: 20,
  });
  expect(first).toContain('Started in the background as slow-t1.0.');
  expect(others[0]).toMatch(/^\{"working":"a"\}\n\[slow-t1\.0 is running/);
  expect(others[1]).toContain('slow-t1.0 does not read any input.');
  expect(others[2]).toContain('Its arguments are not valid');
  expect(others[3]).toContain('must be a boolean');
  expect(others[4]).toContain('timed out after 1 ms');
  expect(others.join('\n')).toContain('8 jobs already run in the background: slow-t1.0, slow-t7.0');
});

test('output is read in pages, and a job keeps the end of it', async () => {
  const chatty = tool({
    name: 'chatty',
    description: 'reports much',
    touches: () => [],
    async execute(_, { report, signal }) {
      for (let i = 0; i < 200; i++) report(`${String(i).padStart(4, '0')}${'x'.repeat(9_996)}`);
      await new Promise((done) => signal.addEventListener('abort', done));
    },
  });
  const quick = tool({ name: 'quick', description: 'ends at once', touches: () => [], execute: () => 'the result' });
  const read = (offset?: number): Step => ['background_read', { handle: 'chatty-t1.0', ...(offset && { offset }) }];
  const texts = await results({
    model: scriptedModel(
      script(['chatty', { background: true }], read(), read(), read(1_990_000), ['quick', { background: true }]),
    ),
    tools: [withBackground(chatty), withBackground(quick), ...backgroundTools()],
  });
  expect(texts[1]).toMatch(/^\[(\d+) characters before this were dropped\]\n/);
  const dropped = Number(/\d+/.exec(texts[1]!)![0]);
  expect(texts[1]).toMatch(new RegExp(`\\[\\d+ more characters: read again with offset ${dropped + 10_000}\\]$`));
  expect(texts[2]).toMatch(new RegExp(`read again with offset ${dropped + 20_000}\\]$`));
  expect(texts[3]).toMatch(/^0199x+\n\[chatty-t1\.0 is running; it has printed 2000000 characters\]$/);
  expect(texts[4]).toBe('Started in the background as quick-t5.0.\n[quick-t5.0 has ended. Result:]\nthe result');
});

test('work in the background keeps it open when no call uses it', async () => {
  const clock = manualClock(0);
  const idle = tool({
    name: 'idle',
    description: '',
    timeoutMs: 10_000_000,
    execute: async () => (await clock.advance(3_600_000), 'idled'),
  });
  const texts = await results({
    model: scriptedModel(
      script(['slow', { what: 'a', background: true }], ['idle'], ['background_read', { handle: 'slow-t1.0' }]),
    ),
    tools: [withBackground(slowTool()), idle, ...backgroundTools()],
    clock,
  });
  expect(texts.at(-1)).toContain('slow-t1.0 is running');
});

test.each<[string, Record<string, unknown>, RegExp]>([
  ['background_read', { handle: 'x'.repeat(1_000_000) }, /There is no job "x{100}…" in the background/],
  ['background_read', { handle: 'a\0\n' }, /There is no job "a\\u0000\\n" in the background/],
  ['background_read', { handle: 5 }, /arguments are not valid/],
  ['background_read', { handle: 'x', offset: -1 }, /arguments are not valid/],
  ['background_write', { handle: 'x' }, /arguments are not valid/],
  ['background_stop', { handle: '' }, /arguments are not valid/],
  ['background_list', { extra: 1 }, /arguments are not valid/],
  ['bash', { command: 'ls', background: true, session: 'x' }, /A session cannot run in the background/],
])('%s answers wrong arguments with a clear error', async (name, input, text) => {
  const [result] = await results({ model: scriptedModel(script([name, input])), tools: shellTools() });
  expect(result).toMatch(text);
  expect(result!.length).toBeLessThan(1_000);
});

test('rejects tools that cannot run in the background', () => {
  const named = { name: 'x', description: 'x' };
  expect(() => withBackground(tool(named))).toThrow('cannot run in the background');
  expect(() => withBackground(tool({ ...named, remembers: ['a'], execute: () => '' }))).toThrow('remember nothing');
  expect(() => withBackground(withBackground(slowTool()))).toThrow('already has the argument "background"');
});
