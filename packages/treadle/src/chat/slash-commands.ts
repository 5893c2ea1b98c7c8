import type { Narrowing, RunStore, Usage } from '@treadle/core';
import { skillSource, type Skill } from '@treadle/core/skills';
import { columns } from '../command-line/help.ts';
import { didYouMean } from '@treadle/core/nearest';
import { modelEntries } from '../config/config.ts';
import type { Session } from '../run/session.ts';
import { workText } from '../run/outcome-text.ts';
import { listRuns, runTable } from '../runs/list-delete.ts';
import type { Colours } from '../terminal/colours.ts';
import { printable } from '../terminal/printable.ts';
import { plural, usageText } from '../terminal/quantities.ts';

/** What a chat has used since it was started. */
export interface Spent {
  readonly messages: number;
  readonly turns: number;
  readonly calls: number;
  readonly usage: Usage;
}

/** What the commands of a chat work with. */
export interface Chat {
  readonly session: Session;
  readonly store: RunStore;
  readonly colours: Colours;
  readonly width: number;
  spent(): Spent;
  /** Forgets the conversation, not its runs. */
  clear(): void;
  compact(focus: string): Promise<string>;
  setPlanning(on: boolean): void;
  narrowings(): readonly Narrowing[];
  lift(source: string): boolean;
}

interface SlashCommand {
  readonly help: string;
  /** What the command takes, as the help shows it. */
  readonly argument?: string;
  /** What the argument can be. */
  readonly choices?: (chat: Chat) => readonly string[];
  /** The text to show. Rejects with a message for the user. */
  readonly run: (chat: Chat, argument: string) => Promise<string>;
}

const RUNS_SHOWN = 10;

const COMMANDS: Readonly<Record<string, SlashCommand>> = {
  '/help': { help: 'Show this help', run: async () => slashHelp() },
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
  '/clear': {
    help: 'Start a new conversation; the runs stay in the store',
    async run(chat) {
      chat.clear();
      return 'The conversation is empty. Earlier messages are not sent any more.';
    },
  },
  '/compact': {
    help: 'Replace the conversation by a summary, in which WHAT MATTERS is kept',
    argument: '[WHAT MATTERS]',
    run: (chat, focus) => chat.compact(focus),
  },
  '/plan': {
    help: 'Plan TASK first: nothing is changed until you approve the plan (also Shift+Tab)',
    argument: '[TASK]',
    async run(chat) {
      chat.setPlanning(true);
      return 'Plan mode: the next messages only read. You are asked to approve the plan. Shift+Tab ends the mode.';
    },
  },
  '/lift': {
    help: 'Show what narrows the conversation, or lift the narrowing of SOURCE',
    argument: '[SOURCE]',
    choices: (chat) => [...new Set(chat.narrowings().flatMap(({ source }) => source ?? []))],
    async run(chat, source) {
      if (source !== '' && chat.lift(source))
        return `The narrowing of ${source} does not apply from the next message on.`;
      const named = chat.narrowings().flatMap((one) => one.source ?? []);
      const list = named.length === 0 ? 'nothing that can be lifted' : [...new Set(named)].map(printable).join(', ');
      return `The conversation is narrowed by ${list}.`;
    },
  },
  '/skills': {
    help: 'List the skills, and which of them are active',
    async run({ session, narrowings }) {
      const active = new Set(narrowings().map(({ source }) => source));
      const lines = session.skills.map(
        ({ name, description }) => `/${name}${active.has(skillSource(name)) ? ' (active)' : ''}: ${description}`,
      );
      return lines.length === 0 ? 'There are no skills. See: treadle skills --help' : lines.map(printable).join('\n');
    },
  },
  '/cost': { help: 'Show the tokens and the cost of this chat', run: async (chat) => spentText(chat.spent()) },
  '/runs': {
    help: `List the last ${RUNS_SHOWN} runs of the store`,
    async run({ store, colours, width }) {
      const runs = await listRuns(store, {}, RUNS_SHOWN);
      return runs.length === 0 ? 'There are no runs yet.' : runTable(runs, colours, width).join('\n');
    },
  },
};

/** The skill that a line with its name after a slash asks for; undefined if it is something else. Commands come first. */
export function skillRequest(
  line: string,
  skills: readonly Skill[],
): { readonly name: string; readonly task: string } | undefined {
  const [, name, task = ''] = /^\/([a-z0-9-]+)(?:\s+(.*))?$/s.exec(line) ?? [];
  if (name === undefined || Object.hasOwn(COMMANDS, `/${name}`) || name === 'exit') return undefined;
  if (!skills.some((one) => one.name === name)) return undefined;
  return { name, task: task.trim() || `Use the skill ${name}.` };
}

/** The task of `/plan TASK`; undefined: the line is something else. */
export function planRequest(line: string): string | undefined {
  return /^\/plan\s+(\S[^]*)$/.exec(line)?.[1];
}

/** What can follow a slash at the beginning of a message, or be the argument of a command; undefined: it is neither. */
export function completeCommand(
  before: string,
  chat: Chat,
):
  | { readonly from: number; readonly choices: readonly { readonly text: string; readonly help?: string }[] }
  | undefined {
  const [, name, argument] = /^(\/[a-z0-9-]*)(?:\s+(.*))?$/s.exec(before) ?? [];
  if (name === undefined) return undefined;
  if (argument === undefined && !/\s$/.test(before)) {
    const all = [
      ...Object.entries(COMMANDS).map(([text, { help }]) => ({ text, help })),
      { text: '/exit', help: EXIT_HELP },
      ...chat.session.skills.map((skill) => ({ text: `/${skill.name}`, help: skill.description })),
    ];
    return { from: 0, choices: all.filter(({ text }) => text.startsWith(name)) };
  }
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (!command?.choices) return undefined;
  const typed = argument ?? '';
  const choices = command.choices(chat).filter((text) => text.startsWith(typed));
  return { from: before.length - typed.length, choices: choices.map((text) => ({ text })) };
}

const EXIT_HELP = 'Leave (also Ctrl-D, or Ctrl-C while nothing runs)';

export function slashHelp(): string {
  return columns([
    ...Object.entries(COMMANDS).map(([name, { help, argument }]): [string, string] => [
      argument === undefined ? name : `${name} ${argument}`,
      help,
    ]),
    ['!COMMAND', 'Run a command with bash, under the policy, and share its output with the model'],
    ['@FILE', 'In a message: send the file with it'],
    ['/NAME [TASK]', 'Activate the skill NAME, for the rest of the conversation'],
    ['/exit', EXIT_HELP],
  ]);
}

/**
 * What to show for a line that is a command; undefined if it is a message. A word with a slash is a command, also an unknown
 * one; with more words it is only if there is such a command, because a message can begin with a path.
 */
export async function runSlashCommand(line: string, chat: Chat): Promise<string | undefined> {
  const [, name, argument = ''] = /^(\/[a-z0-9-]*)(?:\s+(.*))?$/s.exec(line) ?? [];
  if (name === undefined) return undefined;
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  const untrusted = command ? undefined : chat.session.whyUntrusted(name.slice(1));
  if (untrusted !== undefined) return untrusted;
  if (!command && argument !== '') return undefined;
  if (!command) {
    const skills = chat.session.skills.map((skill) => `/${skill.name}`);
    const names = [...Object.keys(COMMANDS), '/exit'];
    const more = skills.length === 0 ? '' : ' "/skills" lists the skills.';
    return `There is no command ${name}.${didYouMean(name, [...names, ...skills])} Commands: ${names.join(', ')}.${more}`;
  }
  if (argument !== '' && command.argument === undefined) return `${name} takes no argument.`;
  return command.run(chat, argument.trim());
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
