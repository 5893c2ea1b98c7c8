import { writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { modelEntries } from '../config/config.ts';
import { writeProblem } from '../command-line/named-file.ts';
import type { Session } from '../run/session.ts';
import { workText } from '../run/outcome-text.ts';
import { listRuns, runTable } from '../runs/list-delete.ts';
import { findRun } from '../runs/store-access.ts';
import { paintLine } from '../screen/spans.ts';
import { hasColours } from '../terminal/colours.ts';
import { oneLine, printable } from '../terminal/printable.ts';
import { plural, usageText } from '../terminal/quantities.ts';
import type { Ending } from './conversation.ts';
import { continueText, conversationLine, conversationOf, listConversations } from './conversations.ts';
import { conversationMarkdown } from './export-text.ts';
import type { Chat, SlashCommands, Spent } from './slash-command.ts';

const RUNS_SHOWN = 10;
const MAX_TITLE = 100;

/** Commands about the conversation and its runs. */
export const CONVERSATION_COMMANDS: SlashCommands = {
  '/model': {
    help: 'Show the model, or continue with another one',
    argument: '[NAME]',
    choices: ({ session }) => [...modelEntries(session.context.loaded.config).keys()],
    run: async ({ session }, name) => {
      if (name === '') return modelText(session);
      const notice = await session.changeModel(name);
      return [...(notice === undefined ? [] : [notice]), `The model is now ${session.options.model.id}.`].join('\n');
    },
  },
  '/compact': {
    help: 'Replace the conversation by a summary, in which WHAT MATTERS is kept',
    argument: '[WHAT MATTERS]',
    run: ({ conversation }, focus) => conversation.compact(focus),
  },
  '/clear': {
    help: 'Start a new conversation; the runs stay in the store',
    async run({ conversation }) {
      conversation.clear();
      return 'The conversation is empty. Earlier messages are not sent any more.';
    },
  },
  '/plan': {
    help: 'Plan TASK first: nothing is changed until you approve the plan (also Shift+Tab)',
    argument: '[TASK]',
    async run({ conversation }, task) {
      conversation.setPlanning(true);
      if (task !== '') return conversation.send(task);
      return 'Plan mode: the next messages only read. You are asked to approve the plan. Shift+Tab ends the mode.';
    },
  },
  '/lift': {
    help: 'Show what narrows the conversation, or lift the narrowing of SOURCE',
    argument: '[SOURCE]',
    choices: ({ conversation }) => [...new Set(conversation.narrowings().flatMap(({ source }) => source ?? []))],
    async run({ conversation }, source) {
      if (source !== '' && conversation.lift(source))
        return `The narrowing of ${source} does not apply from the next message on.`;
      const named = conversation.narrowings().flatMap((one) => one.source ?? []);
      const list = named.length === 0 ? 'nothing that can be lifted' : [...new Set(named)].map(printable).join(', ');
      return `The conversation is narrowed by ${list}.`;
    },
  },
  '/undo': {
    anytime: true,
    help: 'Undo what the last message has changed (not possible yet)',
    async run() {
      return (
        'Changes cannot be undone yet: nothing keeps the files as they were. /diff shows what was changed, Esc twice edits an ' +
        'earlier message, and Git can restore files that it has.'
      );
    },
  },
  '/diff': {
    anytime: true,
    help: 'Show what this chat has changed with its tools for files',
    async run({ changes, io, width }) {
      if (!changes) return 'What calls change is elsewhere, so it cannot be compared.';
      const lines = changes.sinceStart(width());
      if (lines.length === 0)
        return 'No file was changed with write, edit or apply_patch. "!git diff" shows other changes.';
      const painted = hasColours(io.stdout, io.env) ? 'standard' : undefined;
      return lines.map((line) => paintLine(line, painted)).join('\n');
    },
  },
  '/fork': {
    help: 'Continue in a copy; the conversation stays in the store as it is now',
    async run({ conversation }) {
      if (conversation.messages.length === 0) return 'The conversation is empty. There is nothing to fork.';
      conversation.fork();
      return 'From the next message on, this is a copy. "/resume" goes back to the original.';
    },
  },
  '/runs': {
    anytime: true,
    help: `List the last ${RUNS_SHOWN} runs of the store`,
    async run({ store, colours, width }) {
      const runs = await listRuns(store, {}, RUNS_SHOWN);
      return runs.length === 0 ? 'There are no runs yet.' : runTable(runs, colours, width()).join('\n');
    },
  },
  '/resume': {
    help: 'Choose an earlier conversation to continue, or the one of a run',
    argument: '[RUN|WORDS]',
    run: resumeConversation,
  },
  '/rename': {
    anytime: true,
    help: 'Give the conversation a title, for /resume',
    argument: 'TITLE',
    async run({ conversation, titles }, title) {
      const text = oneLine(title, MAX_TITLE);
      if (text === '') return 'Give the title: /rename TITLE';
      await titles.set(conversation.id, text);
      return `This conversation is called "${text}" now.`;
    },
  },
  '/export': {
    help: 'Write the conversation as Markdown to FILE',
    argument: '[FILE]',
    async run({ conversation, titles, session }, file) {
      const { id, messages } = conversation;
      if (messages.length === 0) return 'The conversation is empty. There is nothing to export.';
      const name = file === '' ? `${id}.md` : file;
      const text = conversationMarkdown(messages, titles.of(id));
      try {
        await writeFile(resolve(session.context.folder, name), text, { flag: 'wx', mode: 0o600 });
      } catch (error) {
        const exists = (error as NodeJS.ErrnoException).code === 'EEXIST';
        return `${name} cannot be written: ${exists ? 'it exists already' : writeProblem(error)}.`;
      }
      return `Wrote ${plural(messages.length, 'message')} to ${name}. "treadle runs export" writes runs with everything.`;
    },
  },
  '/cost': {
    anytime: true,
    help: 'Show the tokens and the cost of this chat',
    run: async ({ conversation }) => spentText(conversation.spent()),
  },
};

/** Continues the conversation of a run, one whose title has the words, or one that the user chooses. */
export async function resumeConversation(chat: Chat, wanted: string): Promise<string | Ending> {
  const { store, titles, session, conversation, dialogue, width } = chat;
  const all = await listConversations(store, titles);
  if (all.length === 0) return 'The store has no conversation to resume.';
  const byWords = all.filter(({ title }) => title.toLowerCase().includes(wanted.toLowerCase()));
  const isRun = /^(run_)?[0-9a-f]{4,}$/.test(wanted);
  let run = isRun ? await findRun(store, wanted).catch(() => undefined) : undefined;
  if (!run) {
    if (byWords.length === 0) return `No conversation has ${JSON.stringify(wanted)} in its title, and no run this id.`;
    const isFound = wanted !== '' && byWords.length === 1;
    const lines = byWords.map((one) => conversationLine(one, width() - 4));
    const index = isFound ? 0 : await dialogue.choose('Which conversation do you want to resume?', lines);
    if (index === undefined) return 'Nothing was resumed.';
    run = byWords[index]!.newest;
  }
  const found = await conversationOf(run, store, session.context.loaded.config);
  if (typeof found === 'string') return found;
  dialogue.writeLine(continueText(found));
  return conversation.load(found);
}

function modelText({ options, context }: Session): string {
  const names = [...modelEntries(context.loaded.config).keys()];
  const others = names.length === 0 ? '' : ` Models of ${context.loaded.file}: ${names.join(', ')}.`;
  return `The model is ${options.model.id}.${others} "/model NAME" continues with another one, such as openai/MODEL.`;
}

function spentText({ messages, usage, ...work }: Spent): string {
  if (messages === 0) return 'Nothing has been used yet.';
  const cost = usage.cost === undefined ? ', unknown cost' : usage.cost === 0 ? ', no cost' : '';
  return `${plural(messages, 'message')}, ${workText(work)}: ${usageText(usage)}${cost}`;
}
