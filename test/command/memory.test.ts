import { afterEach, beforeEach, expect, test } from 'vitest';
import { command, type Printed } from './in-process.ts';
import { playground, type Playground } from './playground.ts';
import { scriptedOpenAi, type ScriptedOpenAi, type Step } from './scripted-openai.ts';

/* Runs of the command without a server remember as those of one do, if [memory] is on. */

let play: Playground;
let server: ScriptedOpenAi | undefined;

beforeEach(async () => {
  play = await playground();
  await play.write(
    'agents/helper.md',
    '---\nname: helper\ndescription: Helps.\nmemory: true\ninputs:\n  task: { type: string }\n---\nHelp.\n',
  );
});
afterEach(async () => {
  await server?.close();
  server = undefined;
  await play.remove();
});

async function configure(lines: string, ...steps: readonly Step[]): Promise<void> {
  await server?.close();
  server = await scriptedOpenAi(steps);
  const model = `[models.main]\nmodel = "m-1"\nbase_url = "${server.baseURL}"\n`;
  const tools = '[orchestrator.tools]\nenable_sandboxing = false\n';
  await play.write('treadle.toml', `${model}${tools}[agents]\npath = ["agents"]\n${lines}\n`);
}

const treadle = (...args: readonly string[]): Promise<Printed> => command(args, play.folder);
const call = (name: string, args: object): Step => ({ calls: [{ name, arguments: JSON.stringify(args) }] });
const offered = (index: number): readonly string[] =>
  (server!.requests[index]!.tools ?? []).map((one) => (one as { function: { name: string } }).function.name);
const said = (index: number): string => JSON.stringify(server!.requests.at(index)!.messages);

const ON = '[memory]\nenabled = true';
const NOTE = call('remember', { key: 'pet', text: 'Ann has a dog.' });

test('a run notes, the next one recalls, and an agent with memory is told; the journal has it', async () => {
  await configure(
    ON,
    NOTE,
    { text: ['Noted.'] },
    call('recall', { query: 'dog' }),
    { text: ['A dog.'] },
    { text: ['Yes.'] },
  );
  expect(await treadle('run', 'My pet is a dog.')).toMatchObject({ code: 0, stdout: 'Noted.\n' });
  expect(offered(0)).toEqual(expect.arrayContaining(['remember', 'recall']));
  expect(await treadle('run', '--tools', 'recall', 'Which pet?')).toMatchObject({ code: 0, stdout: 'A dog.\n' });
  expect(offered(2)).toEqual(['recall']);
  expect(said(3)).toContain('Ann has a dog.');
  expect(said(3)).toContain('My pet is a dog.');

  expect((await treadle('agents', 'run', 'helper', 'Which dog?')).code).toBe(0);
  expect(said(4)).toContain('# From before');
  expect(said(4)).toContain('Ann has a dog.');
  const { data } = { data: JSON.parse((await treadle('runs', 'list', '--json')).stdout) as { runId: string }[] };
  const shown = await treadle('runs', 'show', data[0]!.runId, '--json');
  expect(shown.stdout).toContain('# From before');
  expect((await treadle('memory', 'list', '--type', 'note')).stdout).toContain('pet: Ann has a dog.');
});

test('labels switch it off, make it private, or are tags', async () => {
  await configure(ON, { text: ['Under the mat.'] }, { text: ['Yes.'] }, NOTE, { text: ['No.'] }, { text: ['Fine.'] });
  await treadle('run', '--label', 'memory=private', 'Where is the key?');
  await treadle('run', '--label', 'tags=home,private', 'Under the mat?');
  expect((await treadle('memory', 'list', '--json')).stdout).toBe('[]\n');
  await treadle('run', '--label', 'memory=off', 'Note my dog.');
  expect(said(-1)).toContain('Memory is switched off');
  expect((await treadle('memory', 'list', '--type', 'note', '--json')).stdout).toBe('[]\n');
  await treadle('run', '--label', 'tags=home', 'How is the dog?');
  expect((await treadle('memory', 'list', '--tag', 'home')).stdout).toContain('Answered: Fine.');
  expect((await treadle('memory', 'list', '--tag', 'hom', '--json')).stdout).toBe('[]\n');
  expect((await treadle('memory', 'search', 'dog', '--tag', 'home')).stdout).toContain('Answered: Fine.');
  expect((await treadle('memory', 'search', 'dog', '--tag', 'hom', '--json')).stdout).toBe('[]\n');
});

test('without its model for embeddings a run finds by words, and says so once', async () => {
  const embeddings =
    '[memory.embeddings]\nprovider = "openai-compatible"\nmodel = "toy"\nbase_url = "http://127.0.0.1:9/v1"';
  const recall = call('recall', { query: 'dog' });
  await configure(`${ON}\n${embeddings}`, NOTE, recall, recall, { text: ['A dog.'] });
  const { code, stderr } = await treadle('run', 'My pet is a dog.');
  expect(code).toBe(0);
  expect(said(-1)).toContain('Ann has a dog.');
  expect(stderr.split('The model for embeddings failed')).toHaveLength(2);
});

test('a chat remembers from one conversation to the next', async () => {
  await configure(ON, NOTE, { text: ['Noted.'] }, call('recall', { query: 'dog' }), { text: ['A dog.'] });
  expect((await command(['chat'], play.folder, 'My pet is a dog.\n')).code).toBe(0);
  const { code, stdout } = await command(['chat'], play.folder, 'Which pet?\n');
  expect([code, stdout]).toEqual([0, expect.stringContaining('A dog.')]);
  expect(said(-1)).toContain('Ann has a dog.');
});

test('a run that is resumed has its memory', async () => {
  await configure(ON, NOTE, { text: ['Noted.'] });
  const paused = await treadle('run', '--ask', 'My pet is a dog.');
  expect(paused.code).toBe(4);
  const [{ runId }] = JSON.parse((await treadle('runs', 'list', '--json')).stdout) as [{ runId: string }];
  expect(await treadle('runs', 'resume', runId, '--approve', 'all')).toMatchObject({ code: 0, stdout: 'Noted.\n' });
  expect((await treadle('memory', 'list', '--type', 'note')).stdout).toContain('Ann has a dog.');
});

test('without [memory] nothing is offered or told; a store in memory ends with the command', async () => {
  await configure('', { text: ['Hi.'] }, { text: ['Hi.'] });
  await treadle('run', 'A dog.');
  expect(offered(0)).not.toContain('recall');
  expect((await treadle('agents', 'run', 'helper', 'Which dog?')).code).toBe(0);
  expect(said(-1)).not.toContain('# From before');

  await configure(ON, NOTE, { text: ['Noted.'] });
  expect((await treadle('run', '--store', 'memory:', 'My pet is a dog.')).code).toBe(0);
  expect(said(-1)).toContain('Remembered');
});
