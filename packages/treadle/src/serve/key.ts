import { stringify } from 'smol-toml';
import { CommandError, command, type Command, type CommandGroup, EXIT } from '../command-line/command.ts';
import { LABEL, SCOPES } from '../config/server.ts';

const newCommand: Command = command({
  name: 'key new',
  summary: 'Make a key for clients of "treadle serve"',
  flags: {
    name: { type: 'text', short: 'n', value: 'NAME', help: 'What logs call it; default: made from its hash' },
    tenant: { type: 'text', value: 'TENANT', help: 'Whose responses it sees; default: "default"' },
    scope: {
      type: 'choice',
      choices: SCOPES,
      many: true,
      value: 'SCOPE',
      help: 'agents:invoke: the API (default); tools:execute: the tools of the server. More than once for both',
    },
  },
  notes: [
    'The key goes to standard output, once: it is kept nowhere. The lines for treadle.toml go to standard error; they\n' +
      'hold only its hash.',
    'Examples:\n  treadle key new --name ci\n  treadle key new --name ops --tenant acme --scope agents:invoke --scope tools:execute',
  ],
  async run({ values }, io) {
    for (const flag of ['name', 'tenant'] as const) {
      const given = values[flag];
      if (given === undefined || LABEL.matches(given)) continue;
      throw new CommandError(`--${flag} cannot be ${JSON.stringify(given)}. It takes ${LABEL.means}.`);
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
    if (!entry.scopes.includes('agents:invoke')) {
      io.stderr.write('Note: without the scope agents:invoke it cannot use the API. Add --scope agents:invoke.\n');
    }
    io.stderr.write('The key is shown this once; keep it where secrets are kept:\n');
    io.stdout.write(`${key}\n`);
    io.stderr.write(`\nFor treadle.toml:\n\n${stringify({ server: { keys: [entry] } })}`);
    return EXIT.completed;
  },
});

export const keyGroup: CommandGroup = {
  name: 'key',
  summary: 'Make keys for clients of the server',
  commands: [newCommand],
  notes: [],
};
