import { writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { costText } from '@treadle/core/describe';
import { didYouMean } from '@treadle/core/nearest';
import { CommandError } from '../command-line/command.ts';
import { columns } from '../command-line/help.ts';
import { writeProblem } from '../command-line/named-file.ts';
import { oneLine, printable } from '../terminal/printable.ts';
import { ageText } from '../terminal/quantities.ts';
import { openConversation, type RemoteChat, type RemoteEnding } from './remote-chat.ts';

interface RemoteCommand {
  readonly help: string;
  readonly argument?: string;
  readonly run: (chat: RemoteChat, argument: string) => Promise<string | RemoteEnding>;
}

const NO_MESSAGE = 'The conversation has no message yet.';

const COMMANDS: Readonly<Record<string, RemoteCommand>> = {
  '/help': { help: 'Show this help', run: async (chat) => help(chat) },
  '/model': {
    help: 'Show the models of the server, or use another one',
    argument: '[NAME]',
    async run(chat, name) {
      const { models } = chat.info;
      const names = models.map(({ id }) => id);
      if (name === '') return `The model is ${modelOf(chat)}. Models of the server: ${names.join(', ')}.`;
      if (!names.includes(name))
        return `The server has no model ${name}.${didYouMean(name, names)} It has ${names.join(', ')}.`;
      chat.model = name;
      return `The model is now ${name}.`;
    },
  },
  '/tools': {
    help: 'List the tools of the server, those that it offers by itself with a *',
    async run({ info, io }) {
      const lines = info.tools.map(({ name, description, is_default }) => {
        return oneLine(printable(`${is_default ? '*' : ' '} ${name}  ${description}`), (io.stdout.columns ?? 80) - 1);
      });
      return lines.length === 0 ? 'The server has no tools.' : lines.join('\n');
    },
  },
  '/clear': {
    help: 'Start a new conversation; this one stays on the server',
    async run(chat) {
      chat.conversation = undefined;
      return 'The next message starts a new conversation.';
    },
  },
  '/resume': {
    help: 'Choose a conversation of the server, or one whose title has the words',
    argument: '[WORDS]',
    run: resumeRemote,
  },
  '/rename': {
    help: 'Give the conversation a title',
    argument: 'TITLE',
    async run({ server, conversation }, title) {
      if (conversation === undefined) return NO_MESSAGE;
      if (title === '') return 'Give the title: /rename TITLE';
      await server.rename(conversation, title);
      return `This conversation is called "${title}" now.`;
    },
  },
  '/fork': {
    help: 'Continue in a copy; the conversation stays as it is',
    async run(chat) {
      if (chat.conversation === undefined) return NO_MESSAGE;
      const { messages } = await chat.server.get(chat.conversation);
      const copy = await chat.server.branch(chat.conversation, messages.at(-1)!.id);
      chat.conversation = copy.id;
      return 'From the next message on, this is a copy. "/resume" goes back to the original.';
    },
  },
  '/export': {
    help: 'Write the conversation as Markdown to FILE',
    argument: '[FILE]',
    async run({ server, conversation, io }, file) {
      if (conversation === undefined) return NO_MESSAGE;
      const name = file === '' ? `${conversation}.md` : file;
      const text = await server.markdown(conversation);
      try {
        await writeFile(resolve(io.cwd, name), text, { flag: 'wx', mode: 0o600 });
      } catch (error) {
        const exists = (error as NodeJS.ErrnoException).code === 'EEXIST';
        return `${name} cannot be written: ${exists ? 'it exists already' : writeProblem(error)}.`;
      }
      return `Wrote ${name}.`;
    },
  },
  '/cost': { help: 'Show the tokens and the cost of this chat', run: async ({ used }) => usedText(used) },
};

/** Whether a line is for the chat, and not for the model. */
export function isRemoteCommand(line: string, info: RemoteChat['info']): boolean {
  const [, name, argument] = /^(\/[a-z0-9-]*)(\s)?/.exec(line.trim()) ?? [];
  if (name === undefined) return /^!\s*\S/.test(line.trim());
  const isSkill = info.skills.some((skill) => name === `/${skill.name}`);
  return !isSkill && (argument === undefined || Object.hasOwn(COMMANDS, name));
}

/** What to show for a line that is a command; undefined if it is a message. The server knows the names of its skills. */
export async function runRemoteCommand(line: string, chat: RemoteChat): Promise<string | RemoteEnding | undefined> {
  const [, name, argument = ''] = /^(\/[a-z0-9-]*)(?:\s+(.*))?$/s.exec(line) ?? [];
  if (name === undefined) {
    return line.startsWith('!')
      ? 'Commands of the shell run where the tools are, which is the server. Ask the model.'
      : undefined;
  }
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (command) return command.run(chat, argument.trim());
  const skills = chat.info.skills.map((skill) => `/${skill.name}`);
  if (argument !== '' || skills.includes(name)) return undefined;
  const names = [...Object.keys(COMMANDS), '/exit'];
  return `There is no command ${name} with --url.${didYouMean(name, [...names, ...skills])} Commands: ${names.join(', ')}.`;
}

/** What can follow a slash at the beginning of a message. */
export function completeRemoteCommand(
  text: string,
  { info }: RemoteChat,
):
  | { readonly from: number; readonly to: number; readonly choices: readonly { text: string; help: string }[] }
  | undefined {
  if (!/^\/[a-z0-9-]*$/.test(text)) return undefined;
  const all = [
    ...Object.entries(COMMANDS).map(([name, command]) => ({ text: name, help: command.help })),
    ...info.skills.map(({ name, description }) => ({ text: `/${name}`, help: description })),
  ];
  return { from: 0, to: text.length, choices: all.filter((one) => one.text.startsWith(text)) };
}

/** Continues a conversation that the user chooses, or the one with the words. */
export async function resumeRemote(chat: RemoteChat, words: string): Promise<string | RemoteEnding> {
  const all = await chat.server.list();
  const found = all.filter(
    ({ title, id }) => id === words || (title ?? '').toLowerCase().includes(words.toLowerCase()),
  );
  if (found.length === 0) {
    return words === ''
      ? 'The server has no conversation.'
      : `No conversation has ${JSON.stringify(words)} in its title.`;
  }
  const lines = found.map(
    ({ title, updated_at }) => `${title ?? 'without a title'}  ${ageText(Date.now() - updated_at)} ago`,
  );
  const isFound = words !== '' && found.length === 1;
  const index = isFound ? 0 : await chat.dialogue.choose('Which conversation do you want to continue?', lines);
  if (index === undefined) return 'Nothing was resumed.';
  return openConversation(chat, found[index]!.id);
}

/** The newest conversation of the server. */
export async function newestRemote({ server }: Pick<RemoteChat, 'server'>): Promise<string> {
  const [newest] = await server.list();
  if (newest) return newest.id;
  throw new CommandError('The server has no conversation to continue. Leave --continue out.');
}

export function modelOf({ model, info }: Pick<RemoteChat, 'model' | 'info'>): string {
  return model ?? info.models.find(({ is_default }) => is_default)?.id ?? 'the default of the server';
}

export function usedText({ tokens, cost }: RemoteChat['used']): string {
  if (tokens === 0) return 'Nothing has been used yet.';
  return `${tokens.toLocaleString('en')} tokens${cost ? ` · ${costText(cost)}` : ''}`;
}

function help({ dialogue: { keys } }: RemoteChat): string {
  const commands = columns([
    ...Object.entries(COMMANDS).map(([name, { help: text, argument = '' }]): [string, string] => [
      `${name} ${argument}`.trim(),
      text,
    ]),
    ['/NAME [TASK]', 'Activate the skill NAME of the server'],
    ['/exit', 'Leave; an answer in progress goes on'],
  ]);
  return keys ? `${commands}\nKeys:\n${columns(keys)}` : commands;
}
