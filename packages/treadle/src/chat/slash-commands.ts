import { messageOf } from '@treadle/core';
import type { Skill } from '@treadle/core/skills';
import { didYouMean } from '@treadle/core/nearest';
import { columns } from '../command-line/help.ts';
import type { Ending } from './conversation.ts';
import { CONVERSATION_COMMANDS } from './conversation-commands.ts';
import { INFO_COMMANDS } from './info-commands.ts';
import { expandCommand, readOwnCommands } from './own-commands.ts';
import type { Chat, SlashCommands } from './slash-command.ts';

const COMMANDS: SlashCommands = {
  '/help': {
    anytime: true,
    help: 'Show this help',
    async run({ session, dialogue, width }) {
      const { commands, problems } = await readOwnCommands(session.context);
      const own = commands.map(({ name, argument = '', help }): [string, string] => [
        `/${name} ${argument}`.trim(),
        help,
      ]);
      return [
        slashHelp(width()),
        ...(dialogue.keys ? [`Keys:\n${columns(dialogue.keys, width())}`] : []),
        ...(own.length === 0 ? [] : [`Commands of this folder:\n${columns(own, width())}`]),
        ...problems,
      ].join('\n');
    },
  },
  ...CONVERSATION_COMMANDS,
  ...INFO_COMMANDS,
};

/** The skill that a line with its name after a slash asks for; undefined if it is something else. Commands come first. */
function skillRequest(
  line: string,
  skills: readonly Skill[],
): { readonly name: string; readonly task: string } | undefined {
  const [, name, task = ''] = /^\/([a-z0-9-]+)(?:\s+(.*))?$/s.exec(line) ?? [];
  if (name === undefined || Object.hasOwn(COMMANDS, `/${name}`) || name === 'exit') return undefined;
  if (!skills.some((one) => one.name === name)) return undefined;
  return { name, task: task.trim() || `Use the skill ${name}.` };
}

/** What can follow a slash at the beginning of a message, or be the argument of a command; undefined: it is neither. */
export async function completeCommand(
  before: string,
  chat: Chat,
): Promise<
  { readonly from: number; readonly choices: readonly { readonly text: string; readonly help?: string }[] } | undefined
> {
  const [, name, argument] = /^(\/[a-z0-9-]*)(?:\s+(.*))?$/s.exec(before) ?? [];
  if (name === undefined) return undefined;
  if (argument === undefined && !/\s$/.test(before)) {
    const { commands } = await readOwnCommands(chat.session.context);
    const all = [
      ...Object.entries(COMMANDS).map(([text, { help }]) => ({ text, help })),
      { text: '/exit', help: EXIT_HELP },
      ...commands.map((own) => ({ text: `/${own.name}`, help: own.help })),
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

export function slashHelp(width?: number): string {
  return columns(
    [
      ...Object.entries(COMMANDS).map(([name, { help, argument }]): [string, string] => [
        argument === undefined ? name : `${name} ${argument}`,
        help,
      ]),
      ['!COMMAND', 'Run a command with bash, under the policy, and share its output with the model'],
      ['@FILE', 'In a message: send the file with it'],
      ['/NAME [TASK]', 'Send .treadle/commands/NAME.md, or activate the skill NAME for the rest of the conversation'],
      ['/exit', EXIT_HELP],
    ],
    width,
  );
}

/**
 * Takes what the user has entered while the model works. True: it is a command, and the model does not get it. One that only shows
 * something is run at once, others when the answer is done.
 */
export async function takeCommand(text: string, chat: Chat): Promise<boolean> {
  const line = text.trim();
  const [, name = '', argument = ''] = /^(\/[a-z0-9-]*)(?:\s+(.*))?$/s.exec(line) ?? [];
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  const { commands } = name === '' ? { commands: [] } : await readOwnCommands(chat.session.context);
  const isCommand =
    /^!\s*\S/.test(line) ||
    command !== undefined ||
    (name !== '' && argument === '') ||
    commands.some((own) => `/${own.name}` === name) ||
    skillRequest(line, chat.session.skills) !== undefined;
  if (!isCommand) return false;
  const { dialogue, conversation } = chat;
  if (command?.anytime) {
    const shown = await command.run(chat, argument.trim()).catch(messageOf);
    if (typeof shown === 'string') dialogue.writeLine(shown);
  } else {
    conversation.unsent.push(line);
    dialogue.writeLine(chat.colours.dim(`${name || 'The command'} follows when the answer is done.`));
  }
  return true;
}

/**
 * What to show for a line that is a command, or how the run ended that it has started; undefined if it is a message. A word with
 * a slash is a command, also an unknown one; with more words it is only if there is such a command, because a message can begin
 * with a path.
 */
export async function runSlashCommand(line: string, chat: Chat): Promise<string | Ending | undefined> {
  const [, name, argument = ''] = /^(\/[a-z0-9-]*)(?:\s+(.*))?$/s.exec(line) ?? [];
  if (name === undefined) return undefined;
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (command) {
    if (argument !== '' && command.argument === undefined) return `${name} takes no argument.`;
    return command.run(chat, argument.trim());
  }
  const { session, conversation, dialogue } = chat;
  const { commands, problems } = await readOwnCommands(session.context);
  const own = commands.find((one) => `/${one.name}` === name);
  if (own) {
    const { folder } = session.context;
    const { callTool } = conversation;
    const message = await expandCommand(own, argument.trim(), { folder, callTool, writeLine: dialogue.writeLine });
    return message ? conversation.send(message.text, { blocks: message.blocks }) : `${name} was stopped.`;
  }
  const asked = skillRequest(line, session.skills);
  if (asked) return conversation.send(asked.task, { skills: [asked.name] });
  const untrusted = session.whyUntrusted(name.slice(1));
  if (untrusted !== undefined) return untrusted;
  if (argument !== '') return undefined;
  const skills = session.skills.map((skill) => `/${skill.name}`);
  const names = [...Object.keys(COMMANDS), '/exit', ...commands.map((one) => `/${one.name}`)];
  const more = skills.length === 0 ? '' : ' "/skills" lists the skills.';
  const unknown = `There is no command ${name}.${didYouMean(name, [...names, ...skills])} Commands: ${names.join(', ')}.${more}`;
  return [unknown, ...problems].join('\n');
}
