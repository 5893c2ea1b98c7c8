import type { PolicyRules } from '@treadle/core/policy';
import { skillSource } from '@treadle/core/skills';
import { textOf } from '@treadle/core';
import type { CommandGroup, Command } from '../command-line/command.ts';
import { alignColumns, columnsOf, oneLine, printable } from '../terminal/printable.ts';
import { commandOutput } from './command-output.ts';
import { LEVELS } from './facts.ts';
import type { Chat, SlashCommands } from './slash-command.ts';

/** Commands that show what the chat works with. */
export const INFO_COMMANDS: SlashCommands = {
  '/tools': {
    anytime: true,
    help: 'List the tools of the model',
    async run({ session, width }) {
      const tools = session.options.tools ?? [];
      if (tools.length === 0) return 'The model has no tools. See: treadle chat --help, at --tools';
      const rows = tools.map(({ name, effect }) => [printable(name), effect ?? 'once']);
      return alignColumns(rows)
        .map((row, index) => {
          const facts = row.join('  ');
          return `${facts}  ${oneLine(tools[index]!.description, Math.max(width() - columnsOf(facts) - 2, 10))}`;
        })
        .join('\n');
    },
  },
  '/mcp': {
    anytime: true,
    help: 'List the MCP servers and whether they can be used',
    run: async (chat) => groupOutput(chat, (await import('../mcp/mcp.ts')).mcpGroup, 'mcp list'),
  },
  '/skills': {
    anytime: true,
    help: 'List the skills, and which of them are active',
    async run({ session, conversation }) {
      const active = new Set(conversation.narrowings().map(({ source }) => source));
      const lines = session.skills.map(
        ({ name, description }) => `/${name}${active.has(skillSource(name)) ? ' (active)' : ''}: ${description}`,
      );
      return lines.length === 0 ? 'There are no skills. See: treadle skills --help' : lines.map(printable).join('\n');
    },
  },
  '/agents': {
    anytime: true,
    help: 'List the agents that are defined in files',
    run: async (chat) => groupOutput(chat, (await import('../agents/agents.ts')).agentsGroup, 'agents list'),
  },
  '/jobs': {
    help: 'List what runs in the background',
    async run({ conversation }) {
      const called = await conversation.callTool('background_list', {}, { isShown: false });
      return called
        ? textOf(called.content)
        : 'There is no tool background_list in this chat, so nothing runs in the background.';
    },
  },
  '/policy': {
    anytime: true,
    help: 'Show what the model may do, or what the policy says about a call',
    argument: '[TOOL [JSON]]',
    choices: ({ session }) => (session.options.tools ?? []).map(({ name }) => name),
    async run(chat, text) {
      if (text === '') return policyText(chat);
      const [, tool = '', json = ''] = /^(\S+)\s*(.*)$/s.exec(text) ?? [];
      const { policyGroup } = await import('../policy/policy.ts');
      return groupOutput(chat, policyGroup, 'policy explain', [tool, ...(json === '' ? [] : [json])]);
    },
  },
  '/init': {
    help: 'Let the model write AGENTS.md for this project ("treadle init" writes treadle.toml)',
    run: ({ conversation }) => conversation.send(WRITE_AGENTS_MD),
  },
  '/doctor': {
    anytime: true,
    help: 'Check the configuration, the store and the keys ("treadle doctor" tests the models, too)',
    run: async (chat) => output(chat, (await import('../setup/doctor.ts')).doctorCommand, ['--no-test']),
  },
};

const WRITE_AGENTS_MD =
  'Write AGENTS.md for this project, or improve the one that is there: at most 40 lines for coding agents that do not know it. ' +
  'Say what is where, with which commands it is built, tested and checked, and which rules of style and of work are not obvious ' +
  'from the code. Look at the files first (README, manifests, CI, a few sources), and run nothing. Write only what you have seen.';

async function groupOutput(
  chat: Chat,
  group: CommandGroup,
  name: string,
  args: readonly string[] = [],
): Promise<string> {
  return output(
    chat,
    group.commands.find((one) => one.name === name)!,
    args,
  );
}

/** What a command of Treadle prints, about the same configuration. */
async function output({ io, location }: Chat, command: Command, args: readonly string[]): Promise<string> {
  const flags = Object.entries(location).flatMap(([name, value]) =>
    Object.hasOwn(command.flags, name) ? [`--${name}=${value}`] : [],
  );
  return commandOutput(command, [...flags, ...args], { io });
}

function policyText({ session }: Chat): string {
  const { autonomy = 1, rules = [] } = (session.options.policy?.rules ?? {}) as PolicyRules & {
    readonly rules?: readonly unknown[];
  };
  const { sandbox } = session.place;
  const saved = session.savedRules.grants.length;
  return [
    `Level ${autonomy}: ${LEVELS[autonomy]}. Change it with policy.autonomy in treadle.toml.`,
    sandbox ?? 'No sandbox.',
    ...(rules.length === 0 ? [] : [`${rules.length} rules of ${session.context.loaded.file}.`]),
    `${saved === 0 ? 'No' : saved} saved rules in ${session.savedRules.file}.`,
    '"/policy TOOL JSON" shows what each rule says about a call.',
  ].join('\n');
}
