import { stringify } from 'smol-toml';
import {
  CommandError,
  defineCommand,
  EXIT,
  SUMMARIES,
  type Command,
  type CommandGroup,
} from '../command-line/command.ts';
import { LABEL, SCOPE } from '../config/server.ts';

const newCommand: Command = defineCommand({
  name: 'key new',
  summary: 'Create a key for clients of "treadle serve"',
  flags: {
    name: { type: 'text', short: 'n', value: 'NAME', help: 'Name of the key in logs; default: derived from its hash' },
    tenant: { type: 'text', value: 'TENANT', help: 'Tenant whose responses the key can access; default: "default"' },
    scope: {
      type: 'text',
      many: true,
      value: 'SCOPE',
      help: 'agents:invoke (default), tools:execute, runs:read, …; may be repeated',
    },
  },
  notes: [
    'agents:invoke is for the API, agents:invoke:NAME for one agent, agents:write for their definitions, tools:execute for\n' +
      'the tools of the server, tools:execute:TOOL for one of them. runs:read and runs:write are for the runs\n' +
      'API, chat:read and chat:write for conversations, metrics:read for /metrics\n' +
      'and status, logs:read for the log, memory:read and memory:write for what was remembered.',
    'Prints the key to standard output. The key is not stored. The lines for treadle.toml go to standard error, and\n' +
      'contain only the hash of the key.',
  ],
  examples: [
    'treadle key new --name ci',
    'treadle key new --name ops --tenant acme --scope agents:invoke --scope tools:execute',
  ],
  async run({ values }, io) {
    for (const flag of ['name', 'tenant'] as const) {
      const value = values[flag];
      if (value === undefined || LABEL.matches(value)) continue;
      throw new CommandError(`--${flag} cannot be ${JSON.stringify(value)}. It takes ${LABEL.means}.`);
    }
    for (const scope of values.scope ?? []) {
      if (!SCOPE.matches(scope)) {
        throw new CommandError(`--scope cannot be ${JSON.stringify(scope)}. It takes ${SCOPE.means}.`);
      }
    }
    const { hashKey, newKey } = await import('@treadle/server');
    const key = newKey();
    const hash = hashKey(key);
    const entry = {
      name: values.name ?? `key-${hash.slice('sha256:'.length).slice(0, 8)}`,
      hash,
      scopes: [...new Set(values.scope ?? ['agents:invoke'])],
      ...(values.tenant !== undefined && { tenant: values.tenant }),
    };
    if (!entry.scopes.some((scope) => !scope.startsWith('tools:'))) {
      io.stderr.write('Note: without the scope agents:invoke the key cannot use the API. Add --scope agents:invoke.\n');
    }
    io.stderr.write('The key is shown only once; store it as a secret:\n');
    io.stdout.write(`${key}\n`);
    io.stderr.write(`\nFor treadle.toml:\n\n${stringify({ server: { keys: [entry] } })}`);
    return EXIT.completed;
  },
});

export const keyGroup: CommandGroup = {
  name: 'key',
  summary: SUMMARIES.key,
  commands: [newCommand],
  notes: [],
};
