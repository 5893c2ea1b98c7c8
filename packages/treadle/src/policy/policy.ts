import { join, resolve } from 'node:path';
import type { Exposure, JudgedCall, Principal, Touch } from '@treadle/core';
import { checkRules, type Place } from '@treadle/core/policy';
import {
  CommandError,
  defineCommand,
  EXIT,
  SUMMARIES,
  type Command,
  type CommandGroup,
} from '../command-line/command.ts';
import { LOCATION_FLAGS } from '../command-line/flags.ts';
import { didYouMean, nearest } from '@treadle/core/nearest';
import type { Config } from '../config/config.ts';
import { resolveContext, workingFolder, type CommandContext } from '../config/context.ts';
import { checkConfig, readConfig } from '../config/load.ts';
import { coloursFor } from '../terminal/colours.ts';
import { exactLine } from '../terminal/printable.ts';
import { plural } from '../terminal/quantities.ts';
import { checkToolArguments, commandTools, toolDefinitions } from '../tools/command-tools.ts';
import { commandPolicy } from './command-policy.ts';
import { explanationLines } from './explanation.ts';
import { judgedCall } from './judged-call.ts';
import { allowingLines, remedyText } from './unattended.ts';

const TOUCH_FIELDS = {
  read: 'path',
  write: 'path',
  command: 'command',
  url: 'url',
  session: 'session',
  device: 'device',
} as const;
const FORMS = 'read=PATH, write=PATH, command=TEXT, url=URL, session=NAME or device=NAME';
const PLACES = ['device', 'ssh', 'container', 'sandbox'] as const satisfies Place['type'][];

const explainCommand: Command = defineCommand({
  name: 'policy explain',
  summary: 'Show what each rule of the policy says about a call, and which decides',
  arguments: ['TOOL', '[JSON]'],
  flags: {
    touch: {
      type: 'text',
      value: 'TYPE=VALUE',
      many: true,
      help: 'What the call would touch, instead of what the tool says; may be repeated',
    },
    seen: {
      type: 'text',
      value: 'KIND=WHAT',
      many: true,
      help: 'What the run has seen before: outside=WHAT or private=WHAT; may be repeated',
    },
    on: {
      type: 'text',
      value: 'TYPE:NAME',
      help: 'Where the touches are: a device, ssh, container or sandbox; default: this machine',
    },
    key: { type: 'text', value: 'NAME', help: 'Judge the call for a key of [[server.keys]], with its scopes' },
    json: { type: 'switch', help: 'Print JSON' },
    config: LOCATION_FLAGS.config,
    cwd: LOCATION_FLAGS.cwd,
  },
  notes: [
    'TOOL is a tool of the command, and JSON its arguments. For a tool of another program, say what its call would touch with\n' +
      `--touch: ${FORMS}.\n` +
      'Nothing is executed, and the call is not counted for the rates.',
    'Exit codes:\n  0  the call was explained, whatever the verdict\n  2  the command, the arguments of the tool or the configuration are invalid',
  ],
  examples: [
    `treadle policy explain read '{"path": ".env"}'`,
    'treadle policy explain shell --touch command="git push --force"',
    'treadle policy explain photo --touch write=/tmp/a.jpg --on device:phone',
  ],
  async run({ values, arguments: [name, text] }, io) {
    const context = await resolveContext(values, io);
    const made = commandPolicy(context, 'policy');
    const touches = values.touch?.map((one) => touchFromFlag(one, placeFromFlag(values.on)));
    if (values.on !== undefined && !touches)
      throw new CommandError('--on says where the things given with --touch are. Add --touch.');
    const call = await callToExplain(name!, text, touches, context);
    const principal = values.key === undefined ? undefined : principalOfKey(values.key, context.loaded.config);
    const exposure = values.seen && exposureFromFlags(values.seen);
    const about = { ...(principal && { principal }), ...(exposure && { exposure }) };
    const explanation = await made.explain(call, about);
    if (values.json) {
      io.stdout.write(`${JSON.stringify(explanation, null, 2)}\n`);
      return EXIT.completed;
    }
    for (const line of explanationLines(explanation, coloursFor(io.stdout, io.env))) io.stdout.write(`${line}\n`);
    for (const [kind, { what }] of Object.entries(exposure ?? {}))
      io.stdout.write(`Seen: ${kind}, ${exactLine(what)}\n`);
    const lines =
      explanation.verdict.type === 'ask'
        ? await allowingLines({ asking: made, folder: context.folder }, call, about)
        : undefined;
    if (lines)
      io.stdout.write(`${remedyText(lines, context.loaded.file)}
`);
    return EXIT.completed;
  },
});

async function callToExplain(
  name: string,
  text: string | undefined,
  touches: readonly Touch[] | undefined,
  context: CommandContext,
): Promise<JudgedCall> {
  const tools = commandTools(context);
  const tool = tools.find((one) => one.name === name);
  if (!tool && !touches) {
    const names = tools.map((one) => one.name);
    throw new CommandError(
      `The command has no tool ${JSON.stringify(name)}.${didYouMean(name, names)} Tools: ${names.join(', ')}. For a tool of ` +
        `another program, say what it would touch, such as --touch write=PATH.`,
    );
  }
  const declared = touches && { touches };
  // What the tool would touch is known without its arguments.
  if (!tool || (declared && text === undefined)) {
    const { effect = 'once', permissions = [] } = tool ?? {};
    return {
      id: '',
      name,
      input: {},
      effect,
      permissions,
      client: false,
      operation: undefined,
      touches: undefined,
      ...declared,
    };
  }
  if (text !== undefined) checkToolArguments(text);
  const judged = await judgedCall(tool, text ?? '{}');
  if ('problem' in judged) throw new CommandError(judged.problem);
  return { ...judged.call, ...declared };
}

function touchFromFlag(text: string, on: Place | undefined): Touch {
  const at = text.indexOf('=');
  const type = text.slice(0, Math.max(at, 0));
  if (Object.hasOwn(TOUCH_FIELDS, type) && at + 1 < text.length) {
    const field = TOUCH_FIELDS[type as keyof typeof TOUCH_FIELDS];
    return { type, [field]: text.slice(at + 1), ...(type !== 'device' && on && { on }) } as unknown as Touch;
  }
  throw new CommandError(`--touch cannot be ${JSON.stringify(text)}. It takes ${FORMS}.`);
}

function placeFromFlag(text: string | undefined): Place | undefined {
  if (text === undefined) return undefined;
  const [, given, name] = /^(\w+):(.+)$/.exec(text) ?? [];
  const type = PLACES.find((one) => one === given);
  if (type && name !== undefined) return { type, name };
  const forms = PLACES.map((one) => `${one}:NAME`).join(', ');
  throw new CommandError(`--on cannot be ${JSON.stringify(text)}. It takes one of ${forms}.`);
}

function exposureFromFlags(flags: readonly string[]): Exposure {
  return Object.fromEntries(
    flags.map((text) => {
      const [, kind, what] = /^(outside|private)=(.+)$/s.exec(text) ?? [];
      if (kind !== undefined) return [kind, { what }];
      throw new CommandError(`--seen cannot be ${JSON.stringify(text)}. It takes outside=WHAT or private=WHAT.`);
    }),
  );
}

function principalOfKey(name: string, { server }: Config): Principal {
  const keys = server?.keys ?? [];
  const key = keys.find((one) => one.name === name);
  if (key) return { subject: name, tenant: key.tenant ?? 'default', scopes: key.scopes ?? ['agents:invoke'] };
  const names = keys.map((one) => one.name!);
  throw new CommandError(
    `[[server.keys]] has no key ${JSON.stringify(name)}.${didYouMean(name, names)} Keys: ${names.join(', ') || 'none'}.`,
  );
}

const checkCommand: Command = defineCommand({
  name: 'policy check',
  summary: 'Check [policy] of a configuration file, and warn about entries that can never apply',
  arguments: ['[FILE]'],
  flags: { json: { type: 'switch', help: 'Print JSON' }, cwd: LOCATION_FLAGS.cwd },
  notes: [
    'FILE is a configuration file; default: treadle.toml in the working folder. All of the file is checked, because the\n' +
      'commands refuse a file with any problem.',
    'Exit codes:\n  0  the file is valid; there may be warnings\n  1  it has problems\n  2  it cannot be read, or is not TOML',
  ],
  examples: ['treadle policy check', 'treadle policy check team.toml --json'],
  async run({ values, arguments: [argument] }, io) {
    const folder = await workingFolder(values.cwd, io);
    const file = argument ?? 'treadle.toml';
    const text = await readConfig(argument === undefined ? join(folder, file) : resolve(io.cwd, file), file);
    if (text === undefined) throw new CommandError(`There is no ${file}. Name the file to check.`);
    const { config, problems } = checkConfig(text, file);
    const warnings = problems.length > 0 ? [] : ruleWarnings(config).map((warning) => `${file}: ${warning}`);
    if (values.json) io.stdout.write(`${JSON.stringify({ file, problems, warnings }, null, 2)}\n`);
    else {
      for (const problem of problems) io.stdout.write(`${problem}\n`);
      for (const warning of warnings) io.stdout.write(`warning: ${warning}\n`);
    }
    const found = problems.length > 0 ? plural(problems.length, 'problem') : plural(warnings.length, 'warning');
    io.stderr.write(`Checked ${file}: ${problems.length + warnings.length === 0 ? 'no problems' : found}.\n`);
    return problems.length > 0 ? EXIT.failed : EXIT.completed;
  },
});

/** Entries that can never apply: by the rules themselves, and because the command has no such tool. */
function ruleWarnings(config: Config): readonly string[] {
  const defined = toolDefinitions();
  const tools = defined.map(({ name }) => name);
  const entries = Object.keys(config.policy?.tools ?? {}).filter((entry) => entry !== '*');
  const isKnown = (entry: string): boolean => tools.includes(entry.split(':')[0]!);
  const unknown = entries.filter((entry) => !isKnown(entry));
  const hasOperations = (entry: string): boolean =>
    defined.some(({ name, operation }) => operation !== undefined && name === entry.split(':')[0]);
  const operations = entries.filter((entry) => isKnown(entry) && entry.includes(':') && !hasOperations(entry));
  return [
    ...checkRules(config.policy ?? {}).warnings.map(({ message }) => `policy.${message}`),
    ...unknown.map((entry) => {
      const meant = nearest(entry, tools);
      const hint = meant === undefined ? '' : ` Did you mean ${meant}?`;
      return `policy.tools names ${JSON.stringify(entry)}, which is not a tool of the command: ${tools.join(', ')}.${hint}`;
    }),
    ...operations.map(
      (entry) => `policy.tools names ${JSON.stringify(entry)}, which never applies: the tool has no operations.`,
    ),
  ];
}

export const policyGroup: CommandGroup = {
  name: 'policy',
  summary: SUMMARIES.policy,
  commands: [explainCommand, checkCommand],
  notes: [
    '"treadle run", "chat" and "serve" judge every call by [policy] of treadle.toml. Without it, reads inside the working\n' +
      'folder run, and everything else is asked about. Where nobody can be asked, it is denied, unless --yes is given.',
  ],
};
