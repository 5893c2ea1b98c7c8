import { isAbsolute } from 'node:path';
import type { Effort } from '@treadle/core';
import { checkRules, type PolicyRules } from '@treadle/core/policy';
import type { ToolSupport } from '@treadle/models';
import type { PromiseName } from '@treadle/tools/sandbox';
import { nearest } from '@treadle/core/nearest';
import { containsSecret, MCP_SHAPE, type McpServerEntry } from './mcp.ts';
import { factsOf, PROVIDERS, type Provider } from './providers.ts';
import { AGENTS_SHAPE, WORKFLOWS_SHAPE, type AgentsConfig, type WorkflowsConfig } from './agents.ts';
import { EDGE_SHAPE, type EdgeConfig } from './edge.ts';
import { HOOKS_SHAPE, type HooksConfig } from './hooks.ts';
import { memoryShape, type MemoryConfig } from './memory.ts';
import { TELEMETRY_SHAPE, type TelemetryConfig } from './telemetry.ts';
import { isWebAddress } from './web-address.ts';
import { SCHEDULES_SHAPE, TRIGGERS_SHAPE, type ScheduleEntry, type TriggerEntry } from './schedules.ts';
import { BUDGETS_SHAPE, type BudgetEntry } from './budgets.ts';
import { SERVER_SHAPE, type ServerConfig } from './server.ts';
import type { EngineChoice, SandboxedTool } from '../tools/sandbox.ts';
import type { Shape } from '@treadle/tools/toml';

/** The parts of treadle.toml that this version uses. CONFIG_SHAPE defines everything that is allowed. */
export interface Config {
  readonly models?: { readonly default?: string } & { readonly [name: string]: ModelEntry | string | undefined };
  readonly server?: ServerConfig;
  /** `instructions`: what `treadle chat` tells the model instead of its own, unless there is --system. */
  readonly chat?: { readonly instructions?: string };
  readonly agents?: AgentsConfig;
  readonly workflows?: WorkflowsConfig;
  readonly schedules?: readonly ScheduleEntry[];
  readonly triggers?: readonly TriggerEntry[];
  readonly hooks?: HooksConfig;
  readonly telemetry?: TelemetryConfig;
  readonly memory?: MemoryConfig;
  readonly store?: { readonly url?: string };
  readonly policy?: PolicyRules;
  readonly budgets?: Readonly<Record<string, BudgetEntry>>;
  readonly mcp?: { readonly servers?: Readonly<Record<string, McpServerEntry>> };
  readonly edge?: EdgeConfig;
  readonly orchestrator?: {
    readonly tool_loop_enabled?: boolean;
    readonly max_tool_iterations?: number;
    readonly tool_error_limit?: number;
    readonly default_tool_timeout_ms?: number;
    /** False: AGENTS.md is not read. */
    readonly agents_md?: boolean;
    /** The budgets that the runs of `run` and `chat` draw on. */
    readonly budgets?: readonly string[];
    readonly tools?: {
      /** The tools of `run` and `chat`: names and sets. */
      readonly offer?: readonly string[];
      /** A folder with skills and with packages of tools, besides ~/.treadle/skills and those of the project. */
      readonly skills_path?: string;
      /** Programs outside of packages that their tools may run. */
      readonly package_binaries?: readonly string[];
      /** Fingerprints of the skills of projects that may be used. */
      readonly trusted_skills?: readonly string[];
      /** False: no sandbox. */
      readonly enable_sandboxing?: boolean;
      readonly sandbox_engine?: EngineChoice;
      /** Other engines for single tools. */
      readonly sandboxing?: Readonly<Partial<Record<SandboxedTool, EngineChoice>>>;
      readonly permissions?: NonNullable<PolicyRules['permissions']>;
    };
  };
}

export interface ModelEntry {
  readonly provider?: Provider;
  readonly model?: string;
  readonly base_url?: string;
  readonly api_key_env?: string;
  /** The context window. Ollama loads the model with it. */
  readonly context_tokens?: number;
  /** False: the model takes no images, or no files such as PDFs. */
  readonly images?: boolean;
  readonly files?: boolean;
  readonly temperature?: number;
  /** Of one reply. */
  readonly max_output_tokens?: number;
  readonly reasoning?: Effort;
  /** Until the reply starts, and between two pieces of it. */
  readonly timeout_ms?: number;
  /** Names of headers, with the environment variables that have their values. */
  readonly headers_env?: Readonly<Record<string, string>>;
  /** In US dollars per million tokens. */
  readonly price?: PriceEntry;
  /** What to do if the provider rejects tools. */
  readonly tool_support?: ToolSupport;
  /** Names of other entries, called in this order if this one fails. */
  readonly fallback?: readonly string[];
}

/** Required are `input` and `output`. `modelProblems` checks that. */
export interface PriceEntry {
  readonly input?: number;
  readonly output?: number;
  readonly cached_input?: number;
  readonly cache_write?: number;
}

/** Copies of lists of core and of models, which take long to load. The types keep them complete. */
const EFFORTS = Object.keys({
  none: 0,
  minimal: 0,
  low: 0,
  medium: 0,
  high: 0,
  xhigh: 0,
  max: 0,
} satisfies Record<Effort, 0>);
const TOOL_SUPPORT = Object.keys({ error: 0, degrade: 0, text: 0 } satisfies Record<ToolSupport, 0>);

const PROMISES = Object.keys({
  network: 0,
  hosts: 0,
  root: 0,
  protected: 0,
  private: 0,
  home: 0,
  processes: 0,
  devices: 0,
  setuid: 0,
  'setuid-files': 0,
  ptrace: 0,
  namespaces: 0,
  sockets: 0,
  keyring: 0,
  terminal: 0,
  tmp: 0,
  memory: 0,
  count: 0,
  'file-size': 0,
  cpu: 0,
  disk: 0,
  environment: 0,
  tree: 0,
  loopback: 0,
} satisfies Record<PromiseName, 0>);
const ENGINES = Object.keys({
  auto: 0,
  bubblewrap: 0,
  firejail: 0,
  podman: 0,
  seatbelt: 0,
  none: 0,
} satisfies Record<EngineChoice, 0>);

const text: Shape = { type: 'text' };
const count: Shape = { type: 'count', min: 1 };
const onOff: Shape = { type: 'switch' };
const key: Shape = {
  type: 'forbidden',
  why: 'keys do not belong in a file. Put the key in an environment variable, and name the variable with api_key_env',
};

const variable: Shape = {
  type: 'text',
  form: {
    matches: (name) => /^[A-Za-z_][A-Za-z0-9_]*$/.test(name),
    means: 'the name of an environment variable, such as OPENAI_API_KEY, and not the key itself',
  },
};
const rate: Shape = { type: 'number', min: 0 };

const engine: Shape = { type: 'text', choices: ENGINES };

const modelEntry: Shape = {
  type: 'table',
  fields: {
    provider: { type: 'text', choices: PROVIDERS },
    model: text,
    base_url: { type: 'text', form: { matches: isWebAddress, means: 'an address such as https://host/v1' } },
    api_key_env: variable,
    headers_env: { type: 'table', fields: {}, others: variable },
    context_tokens: count,
    images: onOff,
    files: onOff,
    temperature: { type: 'number', min: 0, max: 2 },
    max_output_tokens: count,
    reasoning: { type: 'text', choices: EFFORTS },
    timeout_ms: { type: 'count', min: 1, max: 2 ** 31 - 1 },
    tool_support: { type: 'text', choices: TOOL_SUPPORT },
    price: { type: 'table', fields: { input: rate, output: rate, cached_input: rate, cache_write: rate } },
    fallback: { type: 'texts' },
    headers: {
      type: 'forbidden',
      why: 'headers often contain keys. Put the value in an environment variable, and name the variable in headers_env',
    },
    api_key: key,
    apikey: key,
    apiKey: key,
    key,
    token: key,
  },
};

export const CONFIG_SHAPE: Shape = {
  type: 'table',
  fields: {
    models: { type: 'table', fields: { default: text }, others: modelEntry },
    orchestrator: {
      type: 'table',
      fields: {
        tool_loop_enabled: onOff,
        max_tool_iterations: count,
        tool_error_limit: { type: 'count', min: 0 },
        default_tool_timeout_ms: count,
        agents_md: onOff,
        budgets: { type: 'texts' },
        tools: {
          type: 'table',
          fields: {
            offer: { type: 'texts' },
            skills_path: text,
            package_binaries: { type: 'texts', form: { matches: isAbsolute, means: 'absolute paths' } },
            trusted_skills: { type: 'texts' },
            enable_sandboxing: onOff,
            sandbox_engine: engine,
            sandboxing: { type: 'table', fields: { bash: engine, git: engine } satisfies Record<SandboxedTool, Shape> },
            permissions: {
              type: 'table',
              fields: { file_read: onOff, file_write: onOff, shell: onOff, network: onOff, git: onOff, session: onOff },
            },
          },
        },
      },
    },
    policy: { type: 'checked', check: ruleProblems },
    server: SERVER_SHAPE,
    chat: { type: 'table', fields: { instructions: text } },
    agents: AGENTS_SHAPE,
    workflows: WORKFLOWS_SHAPE,
    schedules: SCHEDULES_SHAPE,
    triggers: TRIGGERS_SHAPE,
    hooks: HOOKS_SHAPE,
    telemetry: TELEMETRY_SHAPE,
    memory: memoryShape(variable),
    store: { type: 'table', fields: { url: text } },
    budgets: BUDGETS_SHAPE,
    mcp: MCP_SHAPE,
    edge: EDGE_SHAPE,
  },
};

/** The same checks as for rules in code, and whether the names of promises are known. */
function ruleProblems(rules: object, path: string): readonly string[] {
  const problems = checkRules(rules).problems.map(({ message }) => {
    const text = message.replace(/\.$/, '');
    return text.startsWith('the ') ? `${path}: ${text}` : `${path}.${text}`;
  });
  if (problems.length > 0) return problems;
  const { require = [] } = (rules as PolicyRules).sandbox ?? {};
  const unknown = require.filter((name) => !PROMISES.includes(name));
  return unknown.map((name) => {
    const meant = nearest(name, PROMISES);
    const hint = meant === undefined ? '' : ` Did you mean ${meant}?`;
    return `${path}.sandbox.require names a promise that no sandbox makes.${hint} Promises: ${PROMISES.join(', ')}`;
  });
}

/** The entries of [models], without `default`. */
export function modelEntries(config: Config): ReadonlyMap<string, ModelEntry> {
  const entries = Object.entries(config.models ?? {});
  return new Map(entries.filter((entry): entry is [string, ModelEntry] => typeof entry[1] === 'object'));
}

/** Problems of [models], and of the model for embeddings, that the shape does not cover. Never contains an address, which may contain a secret. */
export function modelProblems(config: Config): string[] {
  const entries = modelEntries(config);
  const names = [...entries.keys()];
  const { embeddings } = config.memory ?? {};
  const unknown = config.models?.default !== undefined && !names.includes(config.models.default);
  return [
    ...(unknown ? [`models.default does not name an entry of [models]. Entries: ${names.join(', ') || 'none'}`] : []),
    ...(names.includes('') ? ['models has an entry without a name. Give it one, such as [models.main]'] : []),
    ...[...entries].flatMap(([name, entry]) => entryProblems(`models.${name}`, entry, { name, names })),
    ...(embeddings ? entryProblems('memory.embeddings', embeddings, { name: '', names: [] }) : []),
  ];
}

/** What the demo model, which runs in this process, has no use for. */
const OF_HTTP = [
  'base_url',
  'api_key_env',
  'headers_env',
  'temperature',
  'max_output_tokens',
  'reasoning',
  'timeout_ms',
  'tool_support',
  'price',
] as const satisfies readonly (keyof ModelEntry)[];

function entryProblems(
  path: string,
  entry: ModelEntry,
  { name, names }: { readonly name: string; readonly names: readonly string[] },
): string[] {
  const { provider = 'openai', model, base_url, fallback = [], price, headers_env = {} } = entry;
  const problems: string[] = [];
  for (const unused of provider === 'demo' ? OF_HTTP.filter((one) => entry[one] !== undefined) : []) {
    problems.push(`${path}.${unused} has no effect on the demo model. Remove it, or name another provider`);
  }
  if (price && (price.input === undefined || price.output === undefined)) {
    problems.push(`${path}.price needs input and output, in US dollars per million tokens`);
  }
  for (const header of Object.keys(headers_env)) {
    if (!/^[\w!#$%&'*+.^`|~-]+$/.test(header)) problems.push(`${path}.headers_env has a key that is not a header name`);
  }
  if (model === undefined && provider !== 'demo') {
    problems.push(`${path}.model is missing: the name of the model at the provider`);
  }
  if (base_url === undefined && provider !== 'demo' && factsOf(provider).baseURL === undefined) {
    problems.push(`${path}.base_url is missing: the address of the server, because ${provider} has no default address`);
  }
  if (base_url !== undefined && containsSecret(new URL(base_url))) {
    problems.push(
      `${path}.base_url contains a password or a key, which do not belong in a file. Put the key in an environment ` +
        `variable, and name the variable with api_key_env`,
    );
  }
  for (const other of fallback) {
    if (other === name) problems.push(`${path}.fallback names the entry itself. Name other entries, or remove it`);
    else if (!names.includes(other)) {
      const meant = nearest(other, names);
      const hint = meant === undefined ? '' : `, did you mean ${meant}?`;
      problems.push(`${path}.fallback does not name an entry of [models]${hint || '.'} Entries: ${names.join(', ')}`);
    }
  }
  return problems;
}
