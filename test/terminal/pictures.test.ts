import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Step } from '../command/scripted-openai.ts';
import { chats, type Chat, type Chats } from './chats.ts';
import { screenPicture } from './screen-picture.ts';

/* The pictures of docs/terminal.md. After a change of the screen: npx vitest run test/terminal/pictures.test.ts -u */

const ADD = 'export function add(a, b) {\n  return a - b;\n}\n';
const TEST = "import { add } from '../add.js';\n\ntest('adds', () => assert.equal(add(1, 2), 3));\n";
const XTERM = { TERM: 'xterm-256color' };
const BACKGROUND = { dark: '\u001b]11;rgb:0000/0000/0000\u0007', light: '\u001b]11;rgb:ffff/ffff/ffff\u0007' } as const;

const call = (name: string, args: object): { readonly name: string; readonly arguments: string } => ({
  name,
  arguments: JSON.stringify(args),
});
const LOOK: Step = {
  reasoning: 'I look at the code first.',
  text: ['I look at the function and its test.'],
  calls: [call('read', { path: 'add.js' }), call('read', { path: 'test/add.test.js' })],
};
const EDIT: Step = {
  text: ['`add` subtracts. I change it:'],
  calls: [call('edit', { path: 'add.js', edits: [{ old_text: 'return a - b;', new_text: 'return a + b;' }] })],
};
const ANSWER = `## Done

The function **subtracted**. It is now:

\`\`\`js
export function add(a, b) {
  return a + b; // was a minus
}
\`\`\`

| file | change |
|---|---|
| \`add.js\` | one operator |
| \`test/add.test.js\` | none |

1. Run the tests with \`npm test\`.
2. Look for the same mistake in *other* places.
`;

let all: Chats;

beforeEach(async () => {
  all = await chats();
  await all.play.write('add.js', ADD);
  await all.play.write('test/add.test.js', TEST);
});
afterEach(() => all.close());

async function expectPicture(shown: Chat, name: string, look: Parameters<typeof screenPicture>[1]): Promise<void> {
  const lines = shown.all().split('\n');
  const from = lines.findLastIndex((line) => /^> ./.test(line));
  await expect(screenPicture(shown.runs().slice(from), look)).toMatchFileSnapshot(`../../docs/${name}.svg`);
}

test('a decision about a change of a file', async () => {
  const columns = 100;
  const shown = await all.open([LOOK, EDIT, { text: ['ok'] }], { size: { columns, rows: 40 }, env: XTERM });
  shown.type(BACKGROUND.dark);
  shown.say('add(1, 2) is -1. Mend it.');
  await shown.shows('d diff');
  await expectPicture(shown, 'terminal-decision', {
    title: 'The chat asks whether a file may be changed, and shows the change',
    theme: 'dark',
    columns,
  });
  shown.type('y');
  await shown.shows('3 turns');
  await shown.leave();
});

test('an answer', async () => {
  const columns = 100;
  const shown = await all.open([{ hang: 'Hello.' }, { ...LOOK, text: [] }, { ...EDIT, text: [] }, { text: [ANSWER] }], {
    args: ['--yes'],
    size: { columns, rows: 60 },
    env: XTERM,
  });
  shown.type(BACKGROUND.dark);
  // Code has colours from when the first run has loaded them.
  shown.say('hello');
  await shown.shows('Hello.');
  await vi.dynamicImportSettled();
  all.server.resume();
  await shown.shows('1 turn and 0 calls');
  shown.say('add(1, 2) is -1. Mend it.');
  await shown.shows('3 turns and 3 calls');
  await shown.hides('Esc stops');
  await expectPicture(shown, 'terminal-answer', {
    title: 'Calls as lines, a change as a diff, and the answer as Markdown',
    theme: 'dark',
    columns,
  });
  await shown.leave();
});

test('work on a plan, on a narrow terminal with a light background', async () => {
  const columns = 48;
  const todo = (task: string, status: string): Step => ({ calls: [call('todowrite', { task, status })] });
  const shown = await all.open(
    [
      { text: ['1. Change the operator in add.js\n2. Run the tests'] },
      todo('Change the operator', 'completed'),
      todo('Run the tests', 'in_progress'),
      { hang: 'Now the tests' },
      { text: ['ok'] },
    ],
    { size: { columns, rows: 40 }, env: XTERM },
  );
  shown.type(BACKGROUND.light);
  shown.say('/plan mend add');
  await shown.shows('Approve the plan');
  shown.type('y');
  await shown.shows('Now the tests');
  await shown.shows('writing');
  await expectPicture(shown, 'terminal-plan', {
    title: 'The chat works on a plan that was approved, with its todos above the prompt',
    theme: 'light',
    columns,
  });
  shown.type('\u001b');
  await shown.shows('Cancelled');
  await shown.leave();
});
