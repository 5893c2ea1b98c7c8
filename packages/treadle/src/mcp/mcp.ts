import { messageOf, type Tool } from '@treadle/core';
import { didYouMean } from '@treadle/core/nearest';
import {
  CommandError,
  defineCommand,
  EXIT,
  SUMMARIES,
  type Command,
  type CommandGroup,
} from '../command-line/command.ts';
import { LOCATION_FLAGS, LOG_FLAGS, YES_FLAG } from '../command-line/flags.ts';
import { resolveContext, type CommandContext } from '../config/context.ts';
import type { Io } from '../terminal/io.ts';
import { alignColumns, exactLine, oneLine } from '../terminal/printable.ts';
import { CALL_EXIT_CODES, callOnce } from '../tools/call-once.ts';
import { commandTools } from '../tools/command-tools.ts';
import { doctorCommand } from './doctor.ts';
import { loginCommand, logoutCommand } from './login.ts';
import { mcpServeCommand } from './serve.ts';
import {
  findEntry,
  loadMcpPackage,
  openMcpTools,
  openSecrets,
  serverEntries,
  serverOptions,
  signInOptions,
  type ServerPlace,
} from './servers.ts';

const JSON_FLAG = { json: { type: 'switch', help: 'Print JSON' } } as const;

const listCommand: Command = defineCommand({
  name: 'mcp list',
  summary: 'List the MCP servers of the configuration',
  flags: { ...JSON_FLAG, ...LOCATION_FLAGS },
  notes: [
    'Connects to none of them: "treadle mcp doctor" does. SIGN-IN is "yes" if there is a token, "no" if there is none, which\n' +
      'the server may not need, and "-" for programs and for servers with a token in headers_env.',
  ],
  examples: ['treadle mcp list'],
  async run({ values }, io) {
    const context = await resolveContext(values, io);
    const place: ServerPlace = { context, env: io.env, secrets: await openSecrets(context) };
    const { isSignedIn } = await loadMcpPackage();
    const rows = await Promise.all(
      [...serverEntries(context)].map(async ([name, entry]) => {
        const { command, args = [], url } = entry;
        // Only whether it can be signed in to counts here, not the variables that it needs.
        const signIn = signInOptions(name, { ...entry, oauth: {} }, place);
        return {
          name,
          type: url === undefined ? 'command' : 'url',
          target: url ?? [command, ...args].join(' '),
          ...(signIn && { signed_in: await isSignedIn(signIn) }),
          ...(entry.tools && { tools: entry.tools }),
        };
      }),
    );
    if (values.json) return printJson(io, rows);
    if (rows.length === 0) io.stderr.write(`${noServersText(context)}\n`);
    else {
      const lines = rows.map(({ name, target, signed_in: isIn }) => {
        return [name, isIn === undefined ? '-' : isIn ? 'yes' : 'no', oneLine(target, 100)];
      });
      for (const row of alignColumns([['NAME', 'SIGN-IN', 'SERVER'], ...lines]))
        io.stdout.write(`${row.join('  ').trimEnd()}\n`);
    }
    return EXIT.completed;
  },
});

const toolsCommand: Command = defineCommand({
  name: 'mcp tools',
  summary: 'List the tools of the MCP servers, under the names that models get',
  arguments: ['[NAME]'],
  flags: { ...JSON_FLAG, ...LOCATION_FLAGS },
  notes: [
    'NAME is a server; default: all. Exit code 1: a server cannot be used. With --json, the output has descriptions and\n' +
      'schemas, too.',
  ],
  examples: ['treadle mcp tools', 'treadle mcp tools files --json'],
  async run({ values, arguments: [name] }, io) {
    const context = await resolveContext(values, io);
    if (name !== undefined) findEntry(context, name);
    const names = name === undefined ? [...serverEntries(context).keys()] : [name];
    const taken = commandTools(context).map((one) => one.name);
    const { all, problems, close } = await openMcpTools(context, io.env, { taken, names });
    try {
      const tools = all().slice(1);
      for (const problem of problems) io.stderr.write(`${problem}\n`);
      if (names.length === 0) io.stderr.write(`${noServersText(context)}\n`);
      if (values.json) printJson(io, tools.map(definitionOf));
      else {
        const rows = tools.map((one) => [one.name, one.effect, oneLine(one.description, 100)]);
        if (rows.length > 0) {
          for (const row of alignColumns([['NAME', 'EFFECT', 'DESCRIPTION'], ...rows])) {
            const line = row.join('  ').trimEnd();
            io.stdout.write(`${line.slice(0, io.stdout.columns ?? 160)}\n`);
          }
        }
      }
      return problems.length > 0 ? EXIT.failed : EXIT.completed;
    } finally {
      await close();
    }
  },
});

function definitionOf({ name, description, effect, parameters, needsApproval }: Tool): object {
  return { name, description, effect, needs_approval: Boolean(needsApproval), parameters };
}

const callCommand: Command = defineCommand({
  name: 'mcp call',
  summary: 'Execute one call of a tool of an MCP server under the policy, and print its result',
  arguments: ['NAME', 'TOOL', '[JSON]'],
  flags: {
    ...YES_FLAG,
    json: { type: 'switch', help: 'Print the whole result as JSON' },
    ...LOG_FLAGS,
    ...LOCATION_FLAGS,
  },
  notes: [
    'NAME is the server, and TOOL its own name for the tool. JSON has the arguments; default: {}. "-" reads them from\n' +
      'standard input. On a terminal, the policy can ask; elsewhere a call that it asks about is denied, unless --yes is\n' +
      'given. Nothing is stored.',
    CALL_EXIT_CODES,
  ],
  examples: [`treadle mcp call files read_text_file '{"path": "notes.txt"}' --yes`],
  async run({ values, arguments: [name = '', wanted = '', given = '{}'] }, io) {
    const context = await resolveContext(values, io);
    const entry = findEntry(context, name);
    const place: ServerPlace = { context, env: io.env, secrets: await openSecrets(context) };
    const { mcpServer, mcpTools } = await loadMcpPackage();
    const server = mcpServer(await serverOptions(name, entry, place));
    try {
      let tools: readonly Tool[];
      let isOwnName = false;
      try {
        const listed = await server.listTools();
        const named = listed.filter((one) => one.name === wanted);
        isOwnName = named.length > 0;
        tools = await mcpTools({ ...server, listTools: async () => (isOwnName ? named : listed) });
      } catch (error) {
        io.stderr.write(`treadle: ${exactLine(messageOf(error))}\n"treadle mcp doctor ${name}" says what to do.\n`);
        return EXIT.failed;
      }
      const tool = isOwnName ? tools[0] : tools.find((one) => one.name === wanted);
      if (!tool) {
        const names = tools.map((one) => one.name);
        throw new CommandError(
          `The MCP server "${name}" has no tool ${JSON.stringify(wanted)}.${didYouMean(wanted, names)} ` +
            `"treadle mcp tools ${name}" lists them.`,
        );
      }
      return await callOnce({ tool, given, context, values, io });
    } finally {
      await server.close();
    }
  },
});

function noServersText({ loaded }: CommandContext): string {
  return `There are no MCP servers. Add one to ${loaded.file ?? 'treadle.toml'}: [mcp.servers.NAME] with command or url.`;
}

function printJson(io: Io, value: unknown): number {
  io.stdout.write(`${JSON.stringify(value, null, 2)}\n`);
  return EXIT.completed;
}

export const mcpGroup: CommandGroup = {
  name: 'mcp',
  summary: SUMMARIES.mcp,
  commands: [listCommand, toolsCommand, callCommand, loginCommand, logoutCommand, doctorCommand, mcpServeCommand],
  notes: [
    'Servers are in treadle.toml:\n' +
      '  [mcp.servers.files]\n' +
      '  command = "npx"\n' +
      '  args = ["-y", "@modelcontextprotocol/server-filesystem", "."]\n' +
      '  [mcp.servers.docs]\n' +
      '  url = "https://example.com/mcp"\n' +
      '"treadle run", "chat" and "serve" offer their tools.',
  ],
};
