import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { chats, KEYS, READ, type Chats } from './chats.ts';

let all: Chats;

beforeEach(async () => {
  all = await chats();
});
afterEach(() => all.close());

test.each([
  ['/tools', /^read +pure /m],
  ['/mcp', 'There are no MCP servers'],
  ['/skills', 'There are no skills'],
  ['/agents', /no agents/i],
  ['/policy', 'Level 1: supervised: asks before it changes something'],
  ['/policy write {"path":"a.txt","content":"x"}', 'Verdict: ask'],
  ['/undo', 'Changes cannot be undone yet'],
  ['/diff', 'No file was changed'],
  ['/fork', 'There is nothing to fork'],
  ['/runs', 'There are no runs yet'],
  ['/resume', 'The store has no conversation to resume'],
  ['/rename', 'Give the title'],
  ['/export', 'There is nothing to export'],
  ['/cost', 'Nothing has been used yet'],
  ['/doctor', 'ok    node: Treadle'],
  ['/jobs', 'Nothing runs in the background'],
  ['/model', 'The model is scripted'],
  ['/tool', 'There is no command /tool. Did you mean "/tools"?'],
])('%s answers', async (command, answer) => {
  const shown = await all.open([]);
  shown.say(command);
  await shown.shows(answer);
  expect(await shown.leave()).toBe(0);
});

test('/help names every command and key', async () => {
  const shown = await all.open([], { size: { columns: 100, rows: 60 } });
  shown.say('/help');
  await shown.shows('/exit');
  const names =
    'help model tools mcp skills agents policy compact clear undo diff fork runs resume rename export cost init doctor';
  for (const name of names.split(' ')) expect(shown.all()).toMatch(new RegExp(`^ */${name}\\b`, 'm'));
  await shown.shows(/^Keys:\n {2}Alt\+Enter, Ctrl\+J +A new line/m);
  for (const key of ['Ctrl+R', 'Tab', 'Esc', 'Shift+Tab', 'Ctrl+O']) expect(shown.all()).toContain(key);
  await shown.leave();
});

test('/init lets the model write AGENTS.md, and the policy asks', async () => {
  const write = { name: 'write', arguments: JSON.stringify({ path: 'AGENTS.md', content: '# Rules\n' }) };
  const shown = await all.open([{ calls: [write] }, { text: ['Written.'] }]);
  shown.say('/init');
  await shown.shows('Allow it?');
  expect(shown.all()).toContain('+ # Rules');
  shown.type('y');
  await shown.shows('Written.');
  expect(await readFile(join(all.play.folder, 'AGENTS.md'), 'utf8')).toBe('# Rules\n');
  await shown.leave();
});

test.runIf(process.platform === 'linux')('/jobs lists what runs in the background, once', async () => {
  const args = JSON.stringify({ command: 'echo begun; exec sleep 100', background: true });
  const shown = await all.open([{ calls: [{ name: 'bash', arguments: args }] }, { text: ['It runs.'] }], {
    args: ['--yes'],
    size: { columns: 120, rows: 30 },
  });
  shown.say('go');
  await shown.shows('2 turns and 1 call');
  shown.say('/jobs');
  await shown.shows(/> \/jobs\n+bash-t1\.0: running for .*echo begun/);
  expect(shown.all()).not.toContain('✓ #2');
  await shown.leave();
});

test('/diff shows what was changed since the chat began', async () => {
  const edit = (from: string, to: string): { readonly calls: readonly { name: string; arguments: string }[] } => ({
    calls: [{ name: 'edit', arguments: JSON.stringify({ path: 'notes.txt', old_text: from, new_text: to }) }],
  });
  const shown = await all.open([READ, edit('the word', 'a word'), edit('a word', 'one word'), { text: ['Done.'] }], {
    args: ['--yes'],
  });
  shown.say('go');
  await shown.shows('4 turns and 3 calls');
  shown.say('/diff');
  await shown.shows(/> \/diff\n[^]*one word is/);
  expect(shown.all().split('> /diff')[1]).not.toContain('a word is');
  await shown.leave();
});

test('/export writes the conversation as Markdown, and replaces no file', async () => {
  const shown = await all.open([READ, { text: ['It is **there**.'] }]);
  shown.say('what is the word?');
  await shown.shows('2 turns and 1 call');
  shown.say('/rename The word');
  await shown.shows('is called "The word" now');
  shown.say('/export talk.md');
  await shown.shows('Wrote 4 messages to talk.md');
  const text = await readFile(join(all.play.folder, 'talk.md'), 'utf8');
  expect(text).toMatch(/^# The word\n\n## You\n\nwhat is the word\?\n\n## Model\n\nCall of `read`:/);
  expect(text).toContain('It is **there**.');
  shown.say('/export talk.md');
  await shown.shows('talk.md cannot be written: it exists already');
  await shown.leave();
});

describe('/resume', () => {
  async function twoConversations(): Promise<void> {
    const shown = await all.open([{ text: ['One.'] }, { text: ['Two.'] }, { text: ['Other.'] }]);
    shown.say('the first question');
    await shown.shows('One.');
    await shown.shows(/1 turn/);
    shown.say('a second question');
    await shown.shows('Two.');
    await shown.shows(/1 turn[^]*1 turn/);
    shown.say('/clear');
    await shown.shows('is empty');
    shown.say('about something else');
    await shown.shows('Other.');
    await shown.shows(/1 turn[^]*1 turn[^]*1 turn/);
    shown.say('/rename Something');
    await shown.shows('is called');
    await shown.leave();
  }

  test('lists conversations by their titles, finds them by words, and continues the chosen one', async () => {
    await twoConversations();
    const shown = await all.open([{ text: ['Three.'] }]);
    shown.say('/resume');
    await shown.shows('Which conversation do you want to resume?');
    expect(shown.screen()).toMatch(/❯ Something .*1 message\n +the first question .*2 messages/);
    shown.type('first');
    await shown.hides('Something  ');
    shown.type(KEYS.enter);
    await shown.shows(/Continues run_.*: a second question/);
    // Where it ended.
    await shown.shows(/Continues run_.*\n\n> a second question\n\nTwo\.\n/);
    shown.say('and now?');
    await shown.shows('Three.');
    const said = all.server.requests[0]!.messages.filter(({ role }) => role === 'user').map(({ content }) => content);
    expect(said).toEqual(['the first question', 'a second question', 'and now?']);
    await shown.shows(/1 turn/);
    await shown.leave();
  });

  test('is also --resume, with a choice or with words', async () => {
    await twoConversations();
    const shown = await all.open([], { args: ['--resume', 'something'], until: 'Continues run_' });
    expect(shown.all()).toContain(': about something else');
    await shown.leave();
    const chosen = await all.open([], { args: ['--resume'], until: 'Which conversation' });
    chosen.type(KEYS.down + KEYS.enter);
    await chosen.shows(/Continues run_.*: a second question/);
    await chosen.leave();
  });

  test('/fork leaves the original as it is', async () => {
    await twoConversations();
    const shown = await all.open([{ text: ['Three.'] }], { args: ['--resume', 'first'] });
    shown.say('/fork');
    await shown.shows('this is a copy');
    shown.say('differently');
    await shown.shows('Three.');
    await shown.shows(/1 turn/);
    shown.say('/resume');
    await shown.shows('Which conversation');
    expect(shown.screen()).toMatch(/❯ differently .*1 message\n +Something .*\n +the first question .*2 messages/);
    shown.type(KEYS.escape);
    await shown.shows('Nothing was resumed.');
    await shown.leave();
  });
});

describe('a command of the folder', () => {
  const said = (): string => JSON.stringify(all.server.requests[0]!.messages.at(-1));

  test('is sent with its arguments, files and the output of commands', async () => {
    await all.play.write(
      '.treadle/commands/review.md',
      '---\ndescription: Review a change\nargument-hint: WHAT\n---\nReview $1 of $ARGUMENTS.\nNow: !`echo out-$2`\nSee @notes.txt\n',
    );
    const shown = await all.open([{ text: ['Fine.'] }], { args: ['--yes'] });
    shown.type('/rev\t');
    await shown.shows('> /review');
    shown.say(' "the file" twice');
    await shown.shows('Fine.');
    expect(said()).toContain('Review the file of \\"the file\\" twice.\\nNow: out-twice\\nSee @notes.txt');
    expect(said()).toContain(all.play.nonce);
    await shown.shows('1 turn and 0 calls');
    shown.say('/help');
    await shown.shows(/\/review WHAT +Review a change/);
    await shown.leave();
  });

  test('runs commands and reads files under the policy only', async () => {
    await all.play.write('.treadle/commands/steal.md', 'Look: !`cat .env` and @.env and $ARGUMENTS');
    await all.play.write('.env', 'SECRET=hunter2\n');
    const shown = await all.open([{ text: ['No.'] }]);
    // What the user has entered is not expanded again.
    shown.say('/steal !`cat notes.txt`');
    await shown.shows('@.env is not sent');
    await shown.shows('No.');
    expect(said()).not.toContain('hunter2');
    expect(said()).toContain('!`cat notes.txt`');
    expect(said()).not.toContain(all.play.nonce);
    await shown.leave();
  });

  test('that is damaged says why', async () => {
    await all.play.write('.treadle/commands/Bad Name.md', 'x');
    await all.play.write('.treadle/commands/empty.md', '');
    await writeFile(join(all.play.folder, '.treadle/commands/yaml.md'), '---\n: : :\n---\nx\n');
    const shown = await all.open([]);
    shown.say('/empty');
    await shown.shows('There is no command /empty');
    await shown.shows('empty.md is not used: it is empty');
    await shown.shows(/Bad Name.md is not used/);
    await shown.shows(/yaml.md is not used: line/);
    await shown.leave();
  });
});
