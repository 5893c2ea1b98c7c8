import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { messageOf } from '@treadle/core';
import { CommandError, defineCommand, EXIT, SUMMARIES, type Command } from '../command-line/command.ts';
import { LOCATION_FLAGS, type LocationValues } from '../command-line/flags.ts';
import { defaultModelName } from '../config/choose-model.ts';
import { resolveContext, type CommandContext } from '../config/context.ts';
import { openExistingStore, storeText } from '../config/store.ts';
import { diagnoseServers } from '../mcp/doctor.ts';
import { listedModels, type ListedModel } from '../models/model-list.ts';
import { probeListed } from '../models/models.ts';
import { passes, probeProblem, probeText, type Probe } from '../models/probe.ts';
import { openAgents, unusedNotice } from '../agents/command-agents.ts';
import { findSkills, problemText } from '../skills/command-skills.ts';
import { requiredPromises, WITHOUT_WALLS } from '../tools/sandbox.ts';
import { coloursFor } from '../terminal/colours.ts';
import type { Io } from '../terminal/io.ts';
import { exactLine } from '../terminal/printable.ts';
import { plural } from '../terminal/quantities.ts';
import { catchInterrupt } from '../terminal/signals.ts';
import { version } from '../version.ts';

/** `warning`: something is missing, but the command works without it. */
interface Check {
  readonly name: string;
  readonly status: 'ok' | 'warning' | 'problem';
  readonly message: string;
  /** What to do. */
  readonly remedy?: string;
}

const DEFAULT_TIMEOUT_S = 20;

export const doctorCommand: Command = defineCommand({
  name: 'doctor',
  summary: SUMMARIES.doctor,
  flags: {
    json: { type: 'switch', help: 'Print JSON' },
    'no-test': { type: 'switch', help: 'Do not send requests to models, and do not connect to MCP servers' },
    timeout: { type: 'count', value: 'SECONDS', min: 1, help: `Deadline of each model; default: ${DEFAULT_TIMEOUT_S}` },
    ...LOCATION_FLAGS,
  },
  notes: [
    'Checks Node, the configuration, the store, the keys, whether each model replies, calls tools and streams, the programs\n' +
      'that tools use, the skills, the agents and the MCP servers. Testing a model costs a few tokens. Keys are never shown.',
    'Exit codes:\n  0    everything works; there may be warnings\n  1    something is broken\n  130  stopped with Ctrl-C',
  ],
  examples: ['treadle doctor', 'treadle doctor --no-test', 'treadle doctor --json --timeout 5'],
  async run({ values }, io) {
    const interrupt = catchInterrupt(io);
    try {
      const timeoutMs = (values.timeout ?? DEFAULT_TIMEOUT_S) * 1_000;
      const testing = values['no-test'] ? undefined : { timeoutMs, stop: interrupt.signal };
      const checks = await examine(values, io, testing);
      if (interrupt.signal.aborted) return EXIT.cancelled;
      const ok = checks.every(({ status }) => status !== 'problem');
      io.stdout.write(values.json ? `${JSON.stringify({ ok, checks }, null, 2)}\n` : report(checks, io));
      return ok ? EXIT.completed : EXIT.failed;
    } finally {
      interrupt.release();
    }
  },
});

/** How models are tested. Absent: not at all. */
type Testing = { readonly timeoutMs: number; readonly stop: AbortSignal } | undefined;

async function examine(values: LocationValues, io: Io, testing: Testing): Promise<readonly Check[]> {
  const first = [nodeCheck(process.versions.node)];
  let context: CommandContext;
  try {
    context = await resolveContext(values, io);
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    const remedy =
      'Correct the file; the other checks need it. "treadle init --config FILE" writes one to compare with.';
    return [...first, { name: 'configuration', status: 'problem', message: error.message, remedy }];
  }
  const [store, models, servers] = await Promise.all([
    storeCheck(context),
    modelChecks(context, io, testing),
    serverChecks(context, io, testing),
  ]);
  return [
    ...first,
    configCheck(context),
    store,
    ...models,
    gitCheck(io),
    ...(await sandboxChecks(context)),
    ...packageChecks(context),
    ...(await skillChecks(context)),
    ...(await agentChecks(context)),
    ...servers,
  ];
}

function nodeCheck(node: string): Check {
  return { name: 'node', status: 'ok', message: `Treadle ${version()} on Node ${node}` };
}

function configCheck({ loaded, folder }: CommandContext): Check {
  const name = 'configuration';
  if (loaded.file !== undefined && defaultModelName(loaded) === undefined && loaded.config.models !== undefined) {
    const message = `${loaded.path} is valid, but has no default model, so --model is always needed`;
    return { name, status: 'warning', message, remedy: 'Add default = "NAME" to [models].' };
  }
  if (loaded.file !== undefined) return { name, status: 'ok', message: `${loaded.path} is valid` };
  const message = `There is no treadle.toml in ${folder}; the defaults are used`;
  return { name, status: 'warning', message, remedy: 'Write one with: treadle init' };
}

async function storeCheck({ store, loaded }: CommandContext): Promise<Check> {
  const name = 'store';
  if (store.type === 'memory') return { name, status: 'warning', message: 'Runs are not stored: the store is memory:' };
  const { file } = store;
  const isFile = store.type === 'sqlite';
  // The message about a database says what to do there.
  const remedy = `${isFile ? 'Change the permissions, or name' : 'Or name'} another store: --store sqlite:PATH, or url in [store].`;
  try {
    if (isFile && !existsSync(file)) {
      accessSync(existingFolder(dirname(file)), constants.W_OK);
      return { name, status: 'ok', message: `${file} will be created by the first run` };
    }
    const opened = await openExistingStore(store);
    try {
      const unfinished = await opened.list({ status: ['running', 'paused'], limit: Infinity });
      const rest = unfinished.length === 0 ? '' : `, ${plural(unfinished.length, 'run')} not finished`;
      const vectors =
        isFile || !loaded.config.memory?.embeddings ? '' : VECTORS[await opened.memory.vectorsComparedBy()];
      return { name, status: 'ok', message: `${storeText(store)} can be used${rest}${vectors}` };
    } finally {
      await opened.close();
    }
  } catch (error) {
    return { name, status: 'problem', message: messageOf(error), remedy };
  }
}

/** Of a database. */
const VECTORS = {
  database: '; it compares the vectors of memory (pgvector)',
  process: '; it has no pgvector, or no vectors of memory yet, so Treadle compares them',
} as const;

/** The nearest folder that exists. */
function existingFolder(folder: string): string {
  return existsSync(folder) || dirname(folder) === folder ? folder : existingFolder(dirname(folder));
}

async function modelChecks({ loaded }: CommandContext, io: Io, testing: Testing): Promise<readonly Check[]> {
  const models = listedModels(loaded, io.env);
  return Promise.all(
    models.map(async (listed): Promise<Check> => {
      const name = `model ${listed.name}`;
      const about = `${[listed.provider, listed.model].filter((one) => one !== undefined).join('/')}${listed.isDefault ? ' (default)' : ''}`;
      const { variable, standing } = listed.key;
      if (standing === 'missing') {
        const status = listed.isDefault || models.length === 1 ? 'problem' : 'warning';
        const remedy = `Set the environment variable: export ${variable}=…`;
        return { name, status, message: `${about} has no key: ${variable} is not set`, remedy };
      }
      if (listed.provider === 'demo') return demoCheck(name, loaded.config.models !== undefined);
      if (!testing) return { name, status: 'ok', message: `${about}, not tested` };
      const test = await probeListed(listed, { loaded, io, ...testing });
      if (passes(test)) return { name, status: 'ok', message: `${about}: ${probeText(test)}` };
      const message = `${about}: ${probeProblem(test)}`;
      return { name, status: 'problem', message, remedy: modelRemedy(listed, test) };
    }),
  );
}

function demoCheck(name: string, isConfigured: boolean): Check {
  const message = 'The demo model follows a few fixed rules; it is not a language model';
  const remedy = 'For a real one: treadle init';
  return isConfigured ? { name, status: 'ok', message } : { name, status: 'warning', message, remedy };
}

/** What to do about a model that does not pass. */
function modelRemedy({ name, key, host, hostVariable, provider }: ListedModel, { reachable, error }: Probe): string {
  const at = `[models.${name}]`;
  const address = hostVariable ?? `base_url in ${at}`;
  if (reachable) return `Choose a model that supports tools, or set tool_support = "text" in ${at}.`;
  switch (error?.code) {
    case 'auth':
      return `Check the key in ${key.variable ?? 'its variable'}: ${host} rejects it.`;
    case 'rate-limit':
    case 'overloaded':
      return 'Try again later, or check the limits and the balance of the account.';
    case 'timeout':
      return `Check the network, or give it more time: --timeout SECONDS.`;
    case 'network':
      if (provider === 'ollama') return `Start it with "ollama serve", or correct ${address}.`;
      return `Check the network, or correct ${address}.`;
    default:
      return hostVariable ? `Correct model in ${at}, and ${hostVariable}.` : `Correct model and base_url in ${at}.`;
  }
}

/** Tools that need git are offered nevertheless, and say what is missing. */
function gitCheck({ env }: Io): Check {
  const { status, stdout } = spawnSync('git', ['--version'], { encoding: 'utf8', env: { PATH: env['PATH'] } });
  if (status === 0) return { name: 'git', status: 'ok', message: stdout.trim() };
  const remedy = 'Install git, if agents should use it.';
  return { name: 'git', status: 'warning', message: 'git was not found, so the git tools fail', remedy };
}

/** What each engine was seen to keep. */
async function sandboxChecks(context: CommandContext): Promise<readonly Check[]> {
  const { DEFAULT_REQUIRED, ENGINE_NAMES, installedEngine, probeEngine } = await import('@treadle/tools/sandbox');
  const { enable_sandboxing: isOn = true, sandbox_engine: wanted = 'auto' } =
    context.loaded.config.orchestrator?.tools ?? {};
  const required = requiredPromises(context, DEFAULT_REQUIRED);
  const checks: Check[] = [];
  for (const engineName of ENGINE_NAMES) {
    const engine = installedEngine(engineName);
    if (!engine) continue;
    const probe = await probeEngine(engine);
    const { kept, broken, version: found, problem } = probe;
    const isEnough = problem === undefined && required.every((promise) => kept.includes(promise));
    const isOnly = wanted === engineName;
    const lines = [
      `${found}, tested: keeps ${kept.join(', ') || 'nothing'}`,
      ...broken.map(({ promise, seen }) => `does not keep ${promise}: ${seen}`),
      ...(problem === undefined ? [] : [`does not start: ${problem}`]),
    ];
    const status = isEnough ? 'ok' : isOnly && isOn ? 'problem' : 'warning';
    checks.push({ name: `sandbox ${engineName}`, status, message: lines.join('\n') });
  }
  const name = 'sandbox';
  if (!isOn || wanted === 'none')
    return [...checks, { name, status: 'warning', message: `Disabled. ${WITHOUT_WALLS}` }];
  if (checks.some(({ status }) => status === 'ok')) return checks;
  const remedy = 'Install bubblewrap. In a container, allow user namespaces.';
  return [...checks, { name, status: 'warning', message: `No sandbox works here. ${WITHOUT_WALLS}`, remedy }];
}

/** Packages of tools. The others work if one does not. */
function packageChecks({ packages: { packages, tools, problems } }: CommandContext): readonly Check[] {
  const name = 'tool packages';
  const found = `${plural(packages.length, 'package')} with ${plural(tools.length, 'tool')}`;
  if (problems.length > 0) return [{ name, status: 'warning', message: [found, ...problems].join('\n') }];
  return packages.length === 0 ? [] : [{ name, status: 'ok', message: found }];
}

/** Without any skills there is nothing to say. */
async function skillChecks(context: CommandContext): Promise<readonly Check[]> {
  const { skills, problems, trusted, fingerprint } = await findSkills(context);
  const name = 'skills';
  const usable = skills.filter(({ from }) => trusted || from === 'user').length;
  const untrusted = skills.length - usable;
  const remedy = `Start "treadle chat" on a terminal, or set trusted_skills = ["${fingerprint}"] in [orchestrator.tools].`;
  return [
    ...(usable > 0 ? [{ name, status: 'ok', message: plural(usable, 'skill') } as const] : []),
    ...(untrusted > 0
      ? [
          {
            name,
            status: 'warning',
            message: `${plural(untrusted, 'skill')} of the project not trusted`,
            remedy,
          } as const,
        ]
      : []),
    ...problems.map((problem): Check => ({
      name,
      status: 'warning',
      message: `Does not load: ${problemText(problem)}`,
    })),
  ];
}

/** Without any agents there is nothing to say. */
async function agentChecks(context: CommandContext): Promise<readonly Check[]> {
  const registry = await openAgents(context);
  const count = registry?.list().length ?? 0;
  const name = 'agents';
  return [
    ...(count > 0 ? [{ name, status: 'ok', message: plural(count, 'agent') } as const] : []),
    ...(registry ? unusedNotice(registry) : []).map((message): Check => ({ name, status: 'warning', message })),
  ];
}

async function serverChecks(context: CommandContext, io: Io, testing: Testing): Promise<readonly Check[]> {
  if (!testing) return [];
  const servers = await diagnoseServers(context, io.env);
  return servers.map(({ name, ok, tools = 0, findings: [finding] }) => ({
    name: `mcp server ${name}`,
    status: !ok ? 'problem' : finding ? 'warning' : 'ok',
    message: finding?.problem ?? plural(tools, 'tool'),
    ...(finding && { remedy: finding.remedy }),
  }));
}

function report(checks: readonly Check[], io: Io): string {
  const colours = coloursFor(io.stdout, io.env);
  const marks = { ok: 'ok  ', warning: colours.bold('warn'), problem: colours.red('FAIL') };
  const lines = checks.flatMap(({ name, status, message, remedy }) => [
    `${marks[status]}  ${exactLine(name)}: ${message.split('\n').map(exactLine).join('\n        ')}`,
    ...(remedy === undefined ? [] : [`      ${exactLine(remedy)}`]),
  ]);
  const count = (status: Check['status']): number => checks.filter((one) => one.status === status).length;
  const problems = count('problem');
  const warnings = count('warning') > 0 ? `, ${plural(count('warning'), 'warning')}` : '';
  return `${[...lines, '', `${problems === 0 ? 'No problems' : plural(problems, 'problem')}${warnings}.`].join('\n')}\n`;
}
