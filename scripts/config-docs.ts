/**
 * Writes docs/configuration.md: `npm run docs:config`. Keys and types are those of the schema that the command validates
 * treadle.toml with; the table below says what they mean. `test/config-docs.test.ts` names the keys that it lacks.
 */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { checkRules } from '@treadle/core/policy';
import { CONFIG_SHAPE, DEFAULT_STORE, type Shape } from 'treadle';
import { fenced, table } from './markdown.ts';

/** Markdown. An empty default: there is none. */
type Entry = readonly [fallback: string, meaning: string];

/** By path. `NAME` is a name of your own, `[]` is each entry of a list of tables. */
export const KEYS: Readonly<Record<string, Entry>> = {
  'models.default': ['the only entry', 'the entry that is used if no model is named'],
  'models.NAME.provider': ['`"openai"`', 'who serves the model: [the providers](models.md#in-treadletoml)'],
  'models.NAME.model': ['required', 'the name of the model at the provider; not for `demo`'],
  'models.NAME.base_url': [
    'that of the provider',
    'the address of the API, before [its variable](models.md#keys-and-addresses); required for `azure` and `openai-compatible`',
  ],
  'models.NAME.api_key_env': ['that of the provider', 'the environment variable that has the key'],
  'models.NAME.headers_env': [
    '`{}`',
    'headers, each with the environment variable that has its value. With `authorization` among them, no other key is needed',
  ],
  'models.NAME.context_tokens': [
    '128,000; with `ollama` that of the server',
    'the context window: `run` and `chat` compact the conversation before it is full; `ollama` loads the model with it',
  ],
  'models.NAME.images': ['`true`', '`false`: the model takes no images'],
  'models.NAME.files': ['`true`', '`false`: the model takes no files such as PDFs'],
  'models.NAME.temperature': [
    'that of the provider',
    'a request to the server overrides it, as it overrides the next two',
  ],
  'models.NAME.max_output_tokens': ['that of the provider', 'of one reply'],
  'models.NAME.reasoning': ['that of the provider', 'how much the model reasons'],
  'models.NAME.timeout_ms': ['`300000`', 'until the reply starts, and between two pieces of it'],
  'models.NAME.tool_support': [
    '`"error"`',
    'what to do if the provider rejects tools: see [models without tools](models.md#models-without-tools)',
  ],
  'models.NAME.price.input': ['that of the price list', 'US dollars for a million tokens; needs `output` too'],
  'models.NAME.price.output': ['that of the price list', 'US dollars for a million tokens'],
  'models.NAME.price.cached_input': ['that of `input`', 'of tokens that the provider read from its cache'],
  'models.NAME.price.cache_write': ['that of `input`', 'of tokens that the provider wrote to its cache'],
  'models.NAME.fallback': ['`[]`', 'other entries, called in this order if this one fails'],

  'chat.instructions': [
    'those of the command',
    'what [`treadle chat`](terminal.md) tells the model; `--system` overrides it, and `AGENTS.md` is added to it',
  ],

  'hooks.module': ['none', 'a file with [code](runs.md#hooks) for all runs, relative to this file'],
  'telemetry.otlp_endpoint': [
    'none',
    'where [traces and metrics](open-telemetry.md) are sent, with `/v1/traces` and `/v1/metrics` added',
  ],
  'telemetry.content': ['`false`', '`true`: spans have instructions, messages, arguments and results'],
  'telemetry.service_name': ['`"treadle"`', 'the `service.name` of what is sent'],
  'memory.enabled': [
    '`false`',
    '`true`: what runs did is [remembered](memory.md), and `remember` and `recall` are tools',
  ],
  'memory.embeddings.provider': ['`"openai"`', 'finds what is remembered also by its meaning; as in `[models]`'],
  'memory.embeddings.model': ['required', 'such as `text-embedding-3-small`'],
  'memory.embeddings.base_url': ['that of the provider', 'as in `[models]`'],
  'memory.embeddings.api_key_env': ['that of the provider', 'as in `[models]`'],
  'memory.embeddings.dimensions': ['those of the model', 'shorter vectors, if the model can make them'],
  'agents.path': [
    '`["agents", "~/.treadle/agents"]`',
    'folders with definitions of [agents](agents.md); relative to this file, `~` is the home folder',
  ],
  'workflows.path': [
    '`["workflows", "~/.treadle/workflows"]`',
    'folders with definitions of [workflows](workflow-files.md); relative to this file, `~` is the home folder',
  ],
  'schedules[].name': ['required', 'of a [schedule](schedules.md#schedules)'],
  'schedules[].workflow': ['', 'the workflow that it starts; or `agent`'],
  'schedules[].agent': ['', 'the agent that it starts'],
  'schedules[].inputs': ['none', 'their inputs'],
  'schedules[].key': ['', 'the key of `[[server.keys]]` as which its runs are started; required if there are keys'],
  'schedules[].cron': ['', 'when it is due, such as `30 6 * * MON-FRI`; or `every`'],
  'schedules[].time_zone': ['`"UTC"`', 'of `cron`, such as `Europe/Oslo`'],
  'schedules[].every': ['', 'the interval, such as `"15m"`: `s`, `m`, `h`, `d`'],
  'schedules[].missed': ['`"once"`', 'due times when no server ran: `skip`, `once` or `all`'],
  'schedules[].overlap': ['`"skip"`', 'when its last run has not ended: `skip`, `wait` or `allow`'],
  'triggers[].name': ['required', 'of a [trigger](schedules.md#triggers)'],
  'triggers[].workflow': ['', 'the workflow that it starts; or `agent`'],
  'triggers[].agent': ['', 'the agent that it starts'],
  'triggers[].inputs': ['the body of a webhook', 'their inputs, with expressions over `event`'],
  'triggers[].key': ['', 'the key of `[[server.keys]]` as which its runs are started; required if there are keys'],
  'triggers[].webhook_secret_env': ['', 'the environment variable with the secret of `POST /v1/triggers/NAME`'],
  'triggers[].after': ['', 'the workflow or agent whose end starts a run'],
  'triggers[].status': [
    '`["completed"]`',
    'of the run that has ended: `completed`, `failed`, `exhausted`, `cancelled`',
  ],
  'triggers[].file': ['', 'files whose change starts a run; a path or pattern relative to this file'],
  'agents.default': ['none', 'the agent that `__default__` stands for'],
  'agents.max_depth': ['`10`', 'how many agents may be inside each other when they call each other'],
  'agents.injection': [
    '`"off"`',
    'what the server does about inputs that look like an attempt to replace the instructions of an agent: `flag` marks the run, `refuse` answers with a 400. It finds simple attempts only',
  ],
  'agents.write': ['`false`', '`true`: `PUT` and `DELETE` of the agents API change files in the first folder'],

  'orchestrator.tool_loop_enabled': ['`true`', '`false`: no tools are offered, and no MCP server is started'],
  'orchestrator.max_tool_iterations': [
    '`10` for a message of `chat` and a response of `serve`; `20` for `run`',
    'model calls. The [autonomy](policies.md#levels) can set a lower limit',
  ],
  'orchestrator.tool_error_limit': [
    '`3`',
    'turns in a row with nothing but errors, after which a run ends; `0`: no limit',
  ],
  'orchestrator.default_tool_timeout_ms': ['`60000`', 'for a call of a tool that has no time limit of its own'],
  'budgets.NAME.tokens': ['no limit', 'of input and output together'],
  'budgets.NAME.cost': ['no limit', 'in US dollars'],
  'budgets.NAME.calls': ['no limit', 'calls of tools'],
  'budgets.NAME.files': ['no limit', 'files that are written'],
  'budgets.NAME.lines': ['no limit', 'lines that are written'],
  'budgets.NAME.requests': ['no limit', 'requests to addresses'],
  'budgets.NAME.duration_ms': ['no limit', 'how long models and tools work'],
  'budgets.NAME.period': ['none', 'usage begins at 0 with each, in UTC'],
  'budgets.NAME.warn_at': ['none', 'the share of a limit, such as 0.8, from which on runs are warned'],
  'budgets.NAME.at_limit': ['`"refuse"`', '`"ask"`: people decide about what needs more than is left'],
  'budgets.NAME.only.names': ['all', 'counts only these tools and models'],
  'budgets.NAME.only.commands': ['all', 'counts only commands that begin with these words'],
  'budgets.NAME.only.domains': ['all', 'counts only requests to these domains, such as `*.example.com`'],
  'orchestrator.budgets': ['`[]`', 'the [budgets](serve.md#budgets) that runs of `run` and `chat` draw on'],
  'orchestrator.agents_md': ['`true`', '`false`: [AGENTS.md](runs.md) is not read'],
  'orchestrator.tools.offer': ['`["coding", "packages", "mcp"]`', 'the tools of `run` and `chat`: names and sets'],
  'orchestrator.tools.enable_sandboxing': ['`true`', '`false`: commands run with all your rights'],
  'orchestrator.tools.skills_path': [
    'none',
    'another folder with [skills](skills.md) and [packages of tools](tool-packages.md), besides `~/.treadle/skills`; relative to this file, `~` is the home folder',
  ],
  'orchestrator.tools.package_binaries': ['', 'programs outside of packages that their tools may run'],
  'orchestrator.tools.trusted_skills': [
    'none',
    'fingerprints of the skills of projects that are [trusted](skills.md#trust)',
  ],
  'orchestrator.tools.sandbox_engine': ['`"auto"`', 'what confines commands: [Sandboxes](sandboxes.md)'],
  'orchestrator.tools.sandboxing.bash': ['`sandbox_engine`', 'another engine for the shell tools'],
  'orchestrator.tools.sandboxing.git': ['`sandbox_engine`', 'another engine for the git tools'],
  'orchestrator.tools.permissions.file_read': ['`true`', '`false`: tools that read files are not offered'],
  'orchestrator.tools.permissions.file_write': ['`true`', '`false`: tools that write files are not offered'],
  'orchestrator.tools.permissions.shell': ['`true`', '`false`: tools that run commands are not offered'],
  'orchestrator.tools.permissions.network': ['`true`', '`false`: tools that use the network are not offered'],
  'orchestrator.tools.permissions.git': ['`true`', '`false`: tools that use git are not offered'],
  'orchestrator.tools.permissions.session': ['`true`', '`false`: tools that keep sessions are not offered'],

  'policy.autonomy': ['`1`', '0: read only, 1: supervised, 2: bounded, 3: full; see [levels](policies.md#levels)'],
  'policy.tools': ['none', '`"allow"`, `"ask"` or `"deny"` by `tool:operation`, `tool:*`, `tool` or `*`'],
  'policy.permissions.file_read': ['`true`', '`false`: not held, so calls that need it are denied'],
  'policy.permissions.file_write': ['`true`', 'as above'],
  'policy.permissions.shell': ['`true`', 'as above'],
  'policy.permissions.network': ['`true`', 'as above'],
  'policy.permissions.git': ['`true`', 'as above'],
  'policy.permissions.session': ['`true`', 'as above'],
  'policy.commands.allow': ['none', 'commands that run, by their first words: `"git status"`, `"npm run *"`'],
  'policy.commands.ask': ['none', 'commands that people are asked about'],
  'policy.commands.deny': ['none', 'commands that are denied'],
  'policy.paths.read': ['the working folder', 'globs of paths that may be read'],
  'policy.paths.write': ['none', 'globs of paths that may be written'],
  'policy.paths.deny': ['none', 'globs of paths that may be neither read nor written'],
  'policy.paths.only': [
    'none',
    '`"read"`, `"write"`: what is denied, and not asked about, for paths that the lists do not have',
  ],
  'policy.private.paths': ['none', 'globs of further private paths: below level 3, each read is asked about'],
  'policy.private.except': ['none', 'globs of paths that are not private after all'],
  'policy.domains.allow': [
    'none',
    'hosts and ranges that may be reached: `"example.com"`, `"*.example.com"`, `"10.0.0.0/8"`',
  ],
  'policy.domains.ask': ['none', 'hosts that people are asked about'],
  'policy.domains.deny': ['none', 'hosts that are denied'],
  'policy.devices.allow': [
    'none',
    'devices that calls may use from level 1 on, such as `pi` or `pi-*`; other places as `ssh:build`',
  ],
  'policy.devices.ask': ['none', 'devices and places that people are asked about'],
  'policy.devices.deny': ['none', 'devices and places that are denied'],
  'policy.sessions.allow': ['none', 'sessions that calls may use from level 1 on, such as `main` or `job-*`'],
  'policy.sessions.ask': ['none', 'sessions that people are asked about'],
  'policy.sessions.deny': ['none', 'sessions that are denied'],
  'policy.sandbox.require': [
    'most of them',
    'the [promises](sandboxes.md) that a sandbox has to keep: others are not used, and commands in it need no approval at level 2',
  ],
  'policy.sandbox.expose': [
    'none',
    'private files that programs in the sandbox may read, and paths outside: `"~/.m2"`',
  ],
  'policy.sandbox.network': ['`false`', '`true`: programs in the sandbox reach the hosts of `domains.allow`'],
  'policy.exposure': [
    '`"ask"`',
    '`"strict"`: a run that [has seen private data and content from outside](policies.md#read-then-send) may send nothing',
  ],
  'policy.rate.minute': ['`60`', 'calls of a subject within 60 seconds'],
  'policy.rate.second': ['`10`', 'calls of a subject within one second'],
  'policy.approvals.minutes': ['`1440`', 'how long an ask waits for its answer'],
  'policy.approvals.required': ['`1`', 'how many people have to approve'],
  'policy.approvals.approvers': ['anyone', 'who may approve'],

  'server.host': ['`"127.0.0.1"`', 'the address to listen on; others than this machine require keys'],
  'server.port': ['`3210`', '`0` selects a free port'],
  'server.tools': ['read-only', 'the server tools: names and sets, such as `["coding"]`'],
  'server.default_tools': [
    '`[]`',
    'server tools that every request gets; `mcp:NAME` and `device:NAME` are those of a server or device',
  ],
  'server.requests_per_minute': ['no limit', 'per key, or per address without keys'],
  'server.max_concurrent_runs': ['`1000`', 'further runs are rejected until one has ended'],
  'server.max_concurrent_runs_per_tenant': ['half of them', 'the part of them that the keys of one tenant can use'],
  'server.max_open_streams': ['`4000`', 'event streams that are open at the same time'],
  'server.max_duration_ms': ['`600000`', 'per response, which then ends `incomplete`'],
  'server.max_body_bytes': ['`16777216`', 'per request'],
  'server.max_bytes_in_progress': ['`201326592`', 'of all requests and conversations in progress'],
  'server.heartbeat_ms': ['`15000`', 'interval of keep-alive comments in a stream without events'],
  'server.send_timeout_ms': [
    '`60000`',
    'how long a client may read nothing of a response; then the connection is closed',
  ],
  'server.shutdown_grace_ms': ['`10000`', 'how long runs may continue when the server is stopped'],
  'server.retention_days': ['`30`', 'how long responses are stored after they ended or paused; `0` is for ever'],
  'server.requires_action_status': ['`false`', 'use the status `requires_action` for all clients'],
  'server.instructions': [
    '',
    'what the model is told in every request, [before anything else](server.md#instructions): a text, or a table of texts by the name of the model, or `agent/NAME`, with `"*"` for the others',
  ],
  'server.model_aliases': [
    '',
    'further names of models, as [Claude Code](claude-code.md) and [Codex](codex.md) have them, each with an entry of `[models]` or `"default"`; one may end with `*`',
  ],
  'server.record_unstored': [
    '`false`',
    'the runs of responses with `store: false` are recorded, such as those of [Codex](codex.md)',
  ],
  'server.wait_for_answers': ['`false`', 'stored responses wait for approvals and [answers](runs-api.md#answers)'],
  'server.chat_titles': ['`true`', 'the model writes titles for [conversations](chat.md#conversations)'],
  'server.cors_origins': ['`[]`', 'web pages that may use the server'],
  'server.log_level': ['`"info"`', 'what is logged'],
  'server.log_file': [
    'none',
    'a file that the log is kept in, for [`treadle logs`](operate.md); relative to the working folder of the server',
  ],
  'server.log_file_max_bytes': ['`10485760`', 'a file of this size is renamed to FILE.1, and a new one begun'],
  'server.log_files': ['`5`', 'how many files there are, with the current one'],
  'server.keys[].name': ['required', 'the name in logs'],
  'server.keys[].hash': ['required', 'the hash that `treadle key new` prints; the key itself is rejected'],
  'server.keys[].scopes': ['`["agents:invoke"]`', 'what the key allows: [keys](serve.md#keys)'],
  'server.keys[].tenant': ['`"default"`', 'keys of the same tenant see the same responses'],
  'server.keys[].requests_per_minute': ['that of the server', 'overrides the limit of the server'],
  'server.keys[].max_concurrent_requests': ['no limit', 'requests of the key in progress; others get a 429'],
  'server.keys[].expires_at': ['never', 'from this time on the key is rejected'],
  'server.keys[].budgets': ['`[]`', 'the [budgets](serve.md#budgets) that its runs draw on'],
  'server.budgets': ['`[]`', 'the [budgets](serve.md#budgets) that all runs of the server draw on'],
  'server.tenants.NAME.budgets': ['`[]`', 'the budgets that the runs of the tenant draw on'],
  'server.reload': ['`false`', '`true`: the file is [reloaded](serve.md#reload) when it has changed'],
  'server.webhooks.url': ['required', 'where [requests](runs-api.md#webhooks) about runs are sent'],
  'server.webhooks.secret_env': ['required', 'the environment variable with the secret for signatures'],
  'server.webhooks.events': ['all', 'which events are sent'],
  'server.webhooks.allow_private': ['`false`', '`true`: the address may be private'],

  'store.url': [
    `\`"${DEFAULT_STORE}"\``,
    '`sqlite:PATH`, relative to the configuration file, `postgres://USER@HOST/DATABASE`, or `memory:`, which stores nothing',
  ],

  'mcp.servers.NAME.command': [
    '',
    'the program to start: a name in `PATH`, or a path. Either this or `url` is required',
  ],
  'mcp.servers.NAME.args': ['`[]`', 'its arguments'],
  'mcp.servers.NAME.env': ['`{}`', 'variables for it; `"$NAME"` is the value of an environment variable'],
  'mcp.servers.NAME.cwd': ['the working folder', 'where it is started, relative to the configuration file'],
  'mcp.servers.NAME.url': ['', 'the address of a server over HTTP'],
  'mcp.servers.NAME.headers_env': ['`{}`', 'headers, each with the environment variable that has its value'],
  'mcp.servers.NAME.oauth.client_id': ['', 'a client that was [registered](mcp-command.md#sign-in) beforehand'],
  'mcp.servers.NAME.oauth.client_secret_env': ['', 'the environment variable with its secret'],
  'mcp.servers.NAME.oauth.scope': ['', 'what the sign-in asks for'],
  'mcp.servers.NAME.oauth.redirect_port': ['any free one', 'of the address that the browser returns to'],
  'mcp.servers.NAME.tools': ['all', 'the tools that are offered'],
  'mcp.servers.NAME.prefix': ['', 'put in front of the names of its tools'],
  'mcp.servers.NAME.timeout_ms': ['`60000`', 'for one call'],
  'mcp.servers.NAME.park_after_ms': [
    'nine tenths of `timeout_ms`',
    'a call that the server has made a [task](mcp.md#tasks) of is parked after this time',
  ],
  'mcp.servers.NAME.approval': [
    '`"never"`',
    'calls that a person has to approve; a table has the lists of tools `always` and `never`',
  ],
  'mcp.servers.NAME.trust_annotations': ['`false`', '`true`: believe what the server says about its tools'],
  'mcp.servers.NAME.sandbox': ['`false`', '`true`: its program runs in [the sandbox](sandboxes.md#mcp-servers)'],

  'edge.broker': [
    '`"embedded"`',
    '`embedded`, or the address of a broker: `mqtts://`, `wss://`; on this machine also `mqtt://`, `ws://`',
  ],
  'edge.host': [
    '`"127.0.0.1"`',
    'where the embedded broker listens; others need [a certificate and passwords](edge.md#the-broker)',
  ],
  'edge.port': ['`1883`', 'its port; `0`: any free one'],
  'edge.topic_prefix': ['`"treadle"`', 'the first levels of all [topics](edge-protocol.md#topics)'],
  'edge.username': ['', 'the user of the orchestrator at the broker'],
  'edge.password_env': ['', 'the environment variable with its password'],
  'edge.ca': ['those of Node', 'a file with the certificates that the broker has to be signed by'],
  'edge.cert': ['', 'a file with the certificate of the orchestrator, or of the embedded broker'],
  'edge.key': ['', 'a file with its key'],
  'edge.prompts': ['`false`', '`true`: messages that come [over MQTT](edge-protocol.md#commands) are answered'],
  'edge.offline_grace_ms': ['`1000`', 'how long a device may be away before its calls are settled'],
  'edge.devices.NAME.tenant': ['`"default"`', 'whose runs may use it'],
  'edge.devices.NAME.on_offline': ['`"error"`', 'what becomes of its calls while it is away: `error`, or `wait`'],
  'edge.devices.NAME.wait_ms': ['`3600000`', 'how long they wait'],
  'edge.devices.NAME.timeout_ms': [
    '`30000`',
    'for one call whose tool says nothing else; `default_tool_timeout_ms` changes the default',
  ],
  'edge.devices.NAME.built_ins': [
    '`"device"`',
    'where its built-in tools run: on the `device`, or here with its files (`ops`)',
  ],
  'edge.devices.NAME.tools': [
    '',
    'the tools of a device that [does not publish them](edge.md#devices-of-the-original-design)',
  ],
  'edge.devices.NAME.password_env': ['', 'the environment variable with its password, for the embedded broker'],
};

/** What the sections of the page are about. Sections without an entry have only their keys. */
const SECTIONS: Readonly<Record<string, string>> = {
  models: 'Which models there are. [Models](models.md#in-treadletoml) has an example and the providers.',
  orchestrator: 'How runs of `run`, `chat` and `serve` go on.',
  policy:
    'What agents may do. [Policies and approvals](policies.md) describes the rules; `treadle policy check` checks them.',
  server: 'For `treadle serve`. [Serving](serve.md) describes it.',
  'server.keys[]': 'One section for each key of a client, which `treadle key new` prints.',
  'server.tenants.NAME': 'One section for each tenant of the keys that has budgets of its own.',
  store: 'Where runs and responses are stored.',
  'budgets.NAME': 'What runs may use together. [Budgets](serve.md#budgets) describes them.',
  'budgets.NAME.only': 'The [effects](budgets.md#what-a-budget-is) that the budget counts.',
  'mcp.servers.NAME': 'One section for each MCP server. [MCP servers in the command](mcp-command.md) describes them.',
  edge: 'Devices, and the MQTT broker between them and `treadle serve`. [Tools on devices](edge.md) describes them.',
  'edge.devices.NAME': 'One section for each device.',
};

export interface Key {
  readonly path: string;
  readonly type: string;
  /** Accepted in a later version. */
  readonly isLater: boolean;
}

/** Every key that treadle.toml can have, in the order of the schema. */
export function configKeys(shape: Shape = CONFIG_SHAPE, at = ''): Key[] {
  const below = (name: string): string => (at === '' ? name : `${at}.${name}`);
  switch (shape.type) {
    case 'table': {
      const { others } = shape;
      if (others && others.type !== 'table') return [leaf(at, `a table of names, each with ${typeText(others)}`)];
      const fields = Object.entries(shape.fields).flatMap(([name, field]) => configKeys(field, below(name)));
      return others ? [...fields, ...configKeys(others, below('NAME'))] : fields;
    }
    case 'tables':
      return configKeys(shape.each, `${at}[]`);
    case 'checked':
      return at === 'policy' ? policyKeys([]) : [];
    case 'forbidden':
      return [];
    case 'later':
      return [{ path: at, type: '', isLater: true }];
    default:
      return [leaf(at, typeText(shape))];
  }
}

function leaf(at: string, type: string): Key {
  return { path: at, type, isLater: false };
}

/** The keys that the rules accept, from what `checkRules` says about an unknown key. */
function policyKeys(at: readonly string[]): Key[] {
  const problem = at.reduceRight<unknown>((value, key) => ({ [key]: value }), { ' ': 0 });
  const [message = ''] = checkRules(problem).problems.map((one) => one.message);
  const names = /must be one of (.*) instead of/.exec(message)?.[1];
  if (names === undefined) {
    const right = at[0] === 'tools' ? 'a table of names' : /must be (.*?)\.$/.exec(message)?.[1];
    return [leaf(['policy', ...at].join('.'), (right ?? '').replaceAll('"', ''))];
  }
  return [...names.matchAll(/"([^"]+)"/g)].flatMap(([, name]) => policyKeys([...at, name!]));
}

function typeText(shape: Shape): string {
  switch (shape.type) {
    case 'text':
      return shape.choices ? `one of ${quoted(shape.choices)}` : (shape.form?.means ?? 'text');
    case 'texts':
      return `list of ${shape.choices ? quoted(shape.choices) : (shape.form?.means ?? 'texts')}`;
    case 'switch':
      return 'true or false';
    case 'either':
      return `${typeText(shape.text)}, or a table`;
    default: {
      const { type, min, max } = shape as { readonly type: string; readonly min?: number; readonly max?: number };
      const range = [min === undefined ? '' : ` from ${min}`, max === undefined ? '' : ` to ${max}`].join('');
      return `${type === 'count' ? 'whole number' : type}${range}`;
    }
  }
}

function quoted(choices: readonly string[]): string {
  return choices.map((choice) => `\`"${choice}"\``).join(', ');
}

export function configPage(): string {
  const keys = configKeys();
  const sections = Map.groupBy(
    keys.filter(({ isLater }) => !isLater),
    (key) => key.path.slice(0, key.path.lastIndexOf('.')),
  );
  const later = keys.filter(({ isLater }) => isLater).map((key) => `\`${key.path}\``);
  return [
    '# Configuration',
    '<!-- Generated by `npm run docs:config`. Change scripts/config-docs.ts instead. -->',
    'Every key of `treadle.toml`. The command reads the file in the working folder, or the one that `--config FILE` names. Without a ' +
      'file, all keys have their defaults, and the model is chosen by the keys in the environment. Flags override the file.',
    fenced(
      'toml',
      [
        '[models]',
        'default = "main"',
        '',
        '[models.main]',
        'provider = "anthropic" # the key is in ANTHROPIC_API_KEY',
        'model = "claude-sonnet-5"',
        '',
        '[policy]',
        'paths.write = ["src/**"]',
        'commands.allow = ["npm test"]',
        '',
        '[server]',
        'port = 8080',
      ].join('\n'),
    ),
    'An unknown key, a wrong type and a value that is not allowed are errors that name the key and what is allowed. Secrets are ' +
      'rejected wherever they are: put them in environment variables, and name the variables.',
    ...[...sections].flatMap(([section, inside]) => [
      `## ${headingOf(section)}`,
      ...(SECTIONS[section] === undefined ? [] : [SECTIONS[section]]),
      table(
        ['key', 'value', 'default', 'meaning'],
        inside.map((key) => {
          const [fallback, meaning] = KEYS[key.path] ?? ['', ''];
          return [`\`${key.path.slice(section.length + 1)}\``, key.type, fallback, meaning];
        }),
      ),
    ]),
    ...(later.length === 0
      ? []
      : [
          `## Later`,
          `Keys for parts that do not exist yet, which are refused with "not supported yet": ${later.join(', ')}.`,
        ]),
  ].join('\n\n');
}

function headingOf(section: string): string {
  return section.endsWith('[]') ? `[[${section.slice(0, -2)}]]` : `[${section}]`;
}

if (import.meta.main) {
  writeFileSync(path.join(import.meta.dirname, '..', 'docs', 'configuration.md'), `${configPage()}\n`);
}
