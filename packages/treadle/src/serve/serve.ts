import { resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { messageOf, TreadleError, type Model } from '@treadle/core';
import { didYouMean } from '@treadle/core/nearest';
import type { FolderAgents } from '@treadle/tools/agents';
import type { ReplaceableOptions, TreadleServer, TreadleServerOptions } from '@treadle/server';
import { CommandError, defineCommand, EXIT, SUMMARIES, type Command } from '../command-line/command.ts';
import { KEY_NOTE, LOCATION_FLAGS, MODEL_FLAGS, RULE_FLAGS, type ModelValues } from '../command-line/flags.ts';
import { chooseModel, defaultModelName, keyFor, lacksKey, type ModelChoice } from '../config/choose-model.ts';
import { modelEntries } from '../config/config.ts';
import { openLedgers, serverBudgets } from '../config/budgets.ts';
import { resolveContext, type CommandContext } from '../config/context.ts';
import { hooksModule, loadHooks, pickHooks } from '../config/hooks.ts';
import { starterOptions } from '../config/schedules.ts';
import { openEmbedder } from '../memory/open-embedder.ts';
import { reportTelemetry } from '../config/telemetry.ts';
import { missingConfig, type LoadedConfig } from '../config/load.ts';
import { loadPackages } from '../config/packages.ts';
import { openServerStore, storeText } from '../config/store.ts';
import { openAgents, problemText } from '../agents/command-agents.ts';
import { agentFolders, workflowFolders } from '../config/agents.ts';
import { openModel } from '../models/open-model.ts';
import { commandPolicy } from '../policy/command-policy.ts';
import type { Io } from '../terminal/io.ts';
import { catchStopSignal } from '../terminal/signals.ts';
import { configuredServers, splitToolList } from '../mcp/servers.ts';
import type { LoadedSkill } from '@treadle/tools/skills';
import { skillPlaces, skillToolFor } from '../skills/command-skills.ts';
import { openSkills } from '../skills/open-skills.ts';
import { skillRegistry } from '../skills/mcp-skills.ts';
import { chooseTools, sandboxFor } from '../tools/command-tools.ts';
import { isDeviceWord, splitDevices } from '../edge/open-edge.ts';
import { openServerEdge, withDemoDevice, type ServerEdge } from '../edge/serve-edge.ts';
import type { LogFile } from '../operate/log-file.ts';
import { announceServer } from '../operate/server-connection.ts';
import { version } from '../version.ts';
import { configChanges, watchFiles, watchPlaces } from './reload.ts';
import { serveOptions, type AddressFlags, type ServeOptions } from './serve-options.ts';

export const serveCommand: Command = defineCommand({
  name: 'serve',
  summary: SUMMARIES.serve,
  flags: {
    host: {
      type: 'text',
      value: 'HOST',
      help: 'Address to listen on; default: 127.0.0.1. Other addresses require keys',
    },
    port: {
      type: 'count',
      short: 'p',
      value: 'PORT',
      min: 0,
      max: 65_535,
      help: 'Port to listen on; default: 3210. 0 uses any free port',
    },
    'trust-skills': RULE_FLAGS['trust-skills'],
    'demo-device': { type: 'switch', help: 'Start a device on this machine, with the tools of a Raspberry Pi' },
    ...MODEL_FLAGS,
    ...LOCATION_FLAGS,
  },
  notes: [
    'Endpoints: POST /v1/chat, /v1/responses, /v1/chat/completions and /v1/messages, GET /v1/agents, /v1/runs,\n' +
      '/v1/models, /healthz, /readyz, /metrics and /openapi.json, and /mcp for MCP clients. All entries of [models] are\n' +
      'served under their names; --model selects the default. Clients execute the functions of their requests. The server\n' +
      'executes the tools that tools in [server] names (default: the read-only file tools), for MCP clients, for requests\n' +
      'that contain {"type": "mcp", "server_label": "treadle"}, or for all requests with default_tools in [server]. The\n' +
      'tools of [mcp.servers.NAME] have the server_label NAME, those of [edge.devices.NAME] device:NAME.',
    'Without keys, the server listens on this machine only, and accepts requests from any program on it. "treadle key new"\n' +
      'creates a key; its hash goes into [[server.keys]] of treadle.toml. [server] also has limits, CORS and other settings.',
    'Prints one line with the address to standard output, and the log as JSON lines to standard error. Ctrl-C or SIGTERM\n' +
      'stops the server: runs have shutdown_grace_ms to end, the others are resumed at the next start. A second signal ends\n' +
      'the process immediately. SIGHUP reloads the configuration, as far as it can change without a restart; on a terminal, it\n' +
      'stops the server.',
    KEY_NOTE,
    'Exit codes:\n  0  the server was stopped\n  1  it could not listen, or was ended before it had stopped\n' +
      '  2  the command or its configuration is invalid; nothing was served',
  ],
  examples: [
    'treadle serve',
    'treadle serve --port 8080 --model openai/gpt-5-mini',
    'treadle serve --config team.toml',
  ],
  async run({ values }, io) {
    const offered = await offeredBy(values, await resolveContext(values, io), io);
    const { context, models, options } = offered;
    const { server = {} } = context.loaded.config;
    const { newLog, serverMemory, treadleServer } = await import('@treadle/server');
    const { log_level: level, shutdown_grace_ms: graceMs } = server;
    const logFile = await openKeptLog(context, io);
    const to = logFile ? { write: (line: string) => (io.stderr.write(line), logFile.write(line)) } : io.stderr;
    const log = newLog({ to, ...(level !== undefined && { level }) });
    const warn = (text: string): void => {
      if (io.stderr.isTTY) io.stderr.write(`${text}\n`);
      else log.warn(text);
    };
    reportTelemetry((why) => log.warn(why));
    const { embedder, notice } = await openEmbedder(context.loaded, io.env);
    const remote = await configuredServers(context, io.env);
    for (const problem of remote.problems) warn(problem);
    // Last, so that a command that cannot run does not create files.
    const store = await openServerStore(context.store);
    const { enabled = false } = context.loaded.config.memory ?? {};
    const memory = enabled ? serverMemory({ store, ...(embedder && { embedder }) }) : undefined;
    const stop = catchStopSignal(io);
    const stopReloading: (() => void)[] = [];
    let edge: ServerEdge | undefined;
    try {
      edge = await openServerEdge({
        context,
        env: io.env,
        withDemo: values['demo-device'] === true,
        log: ({ level: severity, message, ...facts }) => log[severity](facts, message),
      });
      /** What can change while the server runs. Everything that may fail comes first. */
      const settingsFor = async (now: CommandContext, offer: Offered): Promise<Settings> => {
        const { config } = now.loaded;
        const policy = commandPolicy(now, offer.options.waitForAnswers ? 'policy' : 'never', {
          rates: store.rates,
          onDenied: (denial) => log.warn(denial, 'a call was denied, because nobody can be asked'),
          place: edge?.place,
        });
        // MCP clients can be asked, and people who chat on this machine.
        const askingPolicy = commandPolicy(now, 'policy', { rates: store.rates, place: edge?.place });
        const usable = remote.servers.map(({ name }) => name);
        const ledgerOf = await openLedgers(config, store.budgets);
        const hooks = await loadHooks(now.loaded);
        const devices = edge?.offer(config, offer.defaultDevices);
        return offer.use({
          ...offer.options,
          ...hooks,
          tools: [...(offer.options.tools ?? []), ...(memory?.tools ?? []), ...(devices?.tools ?? [])],
          ...(memory && { memory }),
          ...(devices && { executors: [devices.executor] }),
          models: { default: offer.models.default, models: offer.opened, aliases: offer.models.aliases ?? {} },
          policy,
          askingPolicy,
          ledger: (caller) => ledgerOf(serverBudgets(config, caller)),
          testModel: async (...test) => (await import('../models/probe.ts')).probe(...test),
          skills: offer.skills,
          ...(offer.agents && { namedAgents: offer.agents, agentSettings: agentSettings(config) }),
          ...starterOptions(now.loaded, now.folder, io.env),
          mcp: { version: version(), policy: askingPolicy, ...skillRegistry(offer.skills) },
          mcpServers: {
            servers: remote.servers,
            defaults: offer.defaultServers.filter((name) => usable.includes(name)),
          },
        });
      };
      let settings = await settingsFor(context, offered);
      const server = treadleServer({
        ...settings,
        ...(edge && { devices: edge.link }),
        ...(logFile && { keptLog: logFile }),
        store,
        log,
      });
      const started = context.loaded.config;
      let applied = context;
      edge?.answerPrompts({
        store,
        options: () => ({
          model: settings.models.models.get(settings.models.default)!,
          policy: settings.policy!,
          config: applied.loaded.config,
          hooks: pickHooks(settings),
          ledger: settings.ledger,
        }),
      });
      /** A configuration with errors changes nothing. */
      const reload = async (resolve: () => Promise<CommandContext>): Promise<void> => {
        try {
          const found = await resolve();
          const { file, path } = applied.loaded;
          // At the start it need not exist. Without what it has set, the server could do more.
          if (path !== undefined && found.loaded.path === undefined) throw missingConfig(file!);
          const offer = await offeredBy(values, found, io);
          const { context: now } = offer;
          const { config } = now.loaded;
          const changes = configChanges(started, applied.loaded.config, config);
          const next = await settingsFor(now, offer);
          server.replace(next);
          const code = isDeepStrictEqual(pickHooks(settings), pickHooks(next)) ? [] : ['hooks.module'];
          [settings, applied] = [next, now];
          for (const notice of offer.notices) warn(notice);
          log.info(
            {
              changed: [...new Set([...changes.reload, ...code])],
              keys: config.server?.keys?.length ?? 0,
              packaged: now.packages.tools.length,
              skills: offer.skills.length,
            },
            'the configuration was reloaded',
          );
          if (changes.restart.length > 0) {
            log.warn({ notApplied: changes.restart }, 'some changes of the configuration need a restart');
          }
        } catch (error) {
          // They may have been set.
          await openLedgers(applied.loaded.config, store.budgets).catch(() => {});
          log.error({ why: messageOf(error) }, 'the configuration was not reloaded');
        }
        await followAll();
      };
      // One after the other: a file that was read earlier must not replace what a newer one says.
      let reloaded = Promise.resolve();
      const reloadNext = (resolve: () => Promise<CommandContext>): void =>
        void (reloaded = reloaded.then(() => reload(resolve)));
      const reloadAll = (): void => reloadNext(() => resolveContext(values, io));
      // Before it listens, which takes long if there are many runs to recover: SIGHUP would end the process.
      stopReloading.push(io.onReload?.(reloadAll) ?? (() => {}));
      const files = watchFiles(reloadAll);
      const withPackages = async (): Promise<CommandContext> => ({
        ...applied,
        packages: await loadPackages(applied),
      });
      const watch = watchPlaces(() => reloadNext(withPackages));
      stopReloading.push(files.stop, watch.stop);
      const followAll = async (): Promise<void> => {
        watch.follow([...(await skillPlaces(applied)), ...agentFolders(applied), ...workflowFolders(applied)]);
        const { loaded } = applied;
        if (started.server?.reload) files.follow([loaded.path, hooksModule(loaded)].filter((one) => one !== undefined));
      };
      await followAll();
      const listening = await listenOrExplain(server, io);
      if (listening === undefined) return EXIT.failed;
      const { url, address } = listening;
      stopReloading.push(await announceServer(context.store, url));
      io.outliveReaders();
      io.stdout.write(`Treadle listens on ${address}\n`);
      for (const text of [...offered.notices, ...(notice === undefined ? [] : [notice]), ...(edge?.notices ?? [])])
        warn(text);
      if (io.stderr.isTTY) {
        const store = storeText(context.store);
        const names = [...models.choices.keys()];
        io.stderr.write(`${welcomeText({ url, models: names, default: models.default, options, store })}\n`);
      }
      await stop.received;
      if (io.stderr.isTTY) io.stderr.write('Stopping; press Ctrl-C again to quit immediately.\n');
      await server.close(graceMs);
      return EXIT.completed;
    } finally {
      await Promise.allSettled([...remote.servers.map((one) => one.close()), edge?.close()]);
      await store.close();
      for (const stopOne of stopReloading) stopOne();
      logFile?.close();
      stop.release();
    }
  },
});

/** Undefined: the log is not kept. */
async function openKeptLog({ loaded, folder }: CommandContext, io: Io): Promise<LogFile | undefined> {
  const { log_file: named, log_file_max_bytes: maxBytes, log_files: files } = loaded.config.server ?? {};
  if (named === undefined) return undefined;
  const { openLogFile } = await import('../operate/log-file.ts');
  const file = resolve(folder, named);
  try {
    return openLogFile(file, {
      ...(maxBytes !== undefined && { maxBytes }),
      ...(files !== undefined && { files }),
      onProblem: (why) => io.stderr.write(`The log cannot be written to ${file}: ${why}\n`),
    });
  } catch (error) {
    throw new CommandError(`${loaded.file}: server.log_file ${file} cannot be opened: ${messageOf(error)}`);
  }
}

function agentSettings({ agents = {} }: LoadedConfig['config']): NonNullable<ReplaceableOptions['agentSettings']> {
  const { max_depth: maxDepth, write: writable, injection } = agents;
  return {
    ...(maxDepth !== undefined && { maxDepth }),
    ...(writable !== undefined && { writable }),
    ...(injection !== undefined && { injection }),
  };
}

type Settings = ServeOptions & Omit<ReplaceableOptions, keyof ServeOptions> & Pick<TreadleServerOptions, 'memory'>;

/** What a configuration offers to clients. */
interface Offered {
  readonly context: CommandContext;
  readonly models: ServedModels;
  readonly opened: ReadonlyMap<string, Model>;
  readonly options: ServeOptions;
  readonly skills: readonly LoadedSkill[];
  /** Undefined: there are none. */
  readonly agents: FolderAgents | undefined;
  /** Sets what the server is run with, which its tools use. */
  readonly use: (settings: Settings) => Settings;
  /** Names of MCP servers whose tools every request gets. */
  readonly defaultServers: readonly string[];
  /** Names of devices whose tools every request gets. */
  readonly defaultDevices: readonly string[];
  /** Messages for the user. */
  readonly notices: readonly string[];
}

async function offeredBy(values: ServeValues, found: CommandContext, io: Io): Promise<Offered> {
  const { loaded } = found;
  const { server = {} } = loaded.config;
  const models = servedModels(values, loaded, io.env);
  const opened = new Map(
    await Promise.all([...models.choices].map(async ([name, choice]) => [name, await openModel(choice)] as const)),
  );
  // What the flag has trusted does not change while the server runs.
  const trust = values['trust-skills'] === true && found.trusted === undefined;
  const { skills, context, notices: skillNotices } = await openSkills(found, { trust });
  const list = { words: server.tools ?? ['read-only'], from: `${loaded.file}: server.tools` };
  // Whether somebody can answer is decided for each run.
  const sandbox = await sandboxFor(context, list.words);
  const model = opened.get(models.default)!;
  const agents = await openAgents(context);
  let settings: Settings | undefined;
  const { serverAgents } = await import('@treadle/server');
  const callable = agents && serverAgents(() => settings!, [...opened.values()]);
  const place = { model, canAnswer: true, sandbox, agents: callable };
  const chosen = chooseTools(context, place, list);
  // Runs that are resumed keep the versions that they had.
  const otherVersions = chooseTools(context, place, { ...list, words: ['packages'] });
  const isOffered = chosen.length > 0 && (skills.length > 0 || server.default_tools?.includes('skill'));
  const tools = isOffered ? [...chosen, await skillToolFor(skills, { model, tools: chosen })] : chosen;
  const options = { ...serveOptions(values, loaded, { tools, env: io.env }), otherVersions };
  const listed = server.default_tools ?? [];
  const { servers } = splitToolList(context, {
    words: listed.filter((word) => !isDeviceWord(word)),
    from: `${loaded.file}: server.default_tools`,
  });
  const defaultDevices = splitDevices(values['demo-device'] === true ? withDemoDevice(context) : context, listed);
  const notices = [
    ...models.notices,
    ...(sandbox ? [sandbox.notice] : []),
    ...context.packages.problems,
    ...skillNotices,
    ...(agents?.problems().map((problem) => `An agent is not used: ${problemText(problem)}`) ?? []),
    ...forgetfulAgents(agents, loaded),
  ];
  const use = (now: Settings): Settings => (settings = now);
  return { context, models, opened, options, skills, agents, use, defaultServers: servers, defaultDevices, notices };
}

/** Agents that would use a memory. */
function forgetfulAgents(agents: FolderAgents | undefined, { config }: LoadedConfig): readonly string[] {
  const names = config.memory?.enabled
    ? []
    : (agents?.list() ?? []).flatMap(({ name, memory }) => (memory ? [name] : []));
  if (names.length === 0) return [];
  return [
    `Agents with memory: true are told nothing from before: ${names.join(', ')}. Set enabled = true in [memory].`,
  ];
}

/** If the machine does not allow it to listen, prints why and returns undefined. */
async function listenOrExplain(
  server: TreadleServer,
  io: Io,
): Promise<Awaited<ReturnType<TreadleServer['listen']>> | undefined> {
  try {
    return await server.listen();
  } catch (error) {
    // An invalid option has no cause. An error of the machine has one, and may not occur the next time.
    if (!(error instanceof TreadleError) || error.cause === undefined) throw error;
    io.stderr.write(
      `treadle: ${error.message}\nChange the address with --host and --port, or in [server] of treadle.toml.\n`,
    );
    return undefined;
  }
}

type ServeValues = ModelValues & AddressFlags & { readonly 'trust-skills'?: boolean; readonly 'demo-device'?: boolean };

/** The models of the server by name, and the default for requests that name none. */
export interface ServedModels {
  readonly default: string;
  readonly choices: ReadonlyMap<string, ModelChoice>;
  /** Further names of the models. */
  readonly aliases?: Readonly<Record<string, string>>;
  /** Messages for the user before anything is served. */
  readonly notices: readonly string[];
}

/** All entries of [models], and the model of the flags as the default. Other models without a key are left out. */
export function servedModels(values: ModelValues, loaded: LoadedConfig, env: Io['env']): ServedModels {
  const chosen = chooseModel(values, loaded, env);
  const name = values.model ?? defaultModelName(loaded) ?? (chosen.type === 'demo' ? 'demo' : chosen.model);
  const choices = new Map([[name, chosen]]);
  const notices = chosen.notice === undefined ? [] : [chosen.notice];
  for (const [other, entry] of modelEntries(loaded.config)) {
    if (other === name) continue;
    const key = keyFor(entry, env);
    if (lacksKey(key)) {
      notices.push(
        `The model ${other} is left out because it has no key: set the environment variable ${key.variable}.`,
      );
      continue;
    }
    const choice = chooseModel({ model: other }, loaded, env);
    choices.set(other, choice);
    if (choice.notice !== undefined) notices.push(choice.notice);
  }
  const aliases = aliasesOf(loaded, name, choices);
  return { default: name, choices, ...(aliases && { aliases }), notices: [...new Set(notices)] };
}

/** An alias of a model that is left out is left out too. */
function aliasesOf(
  { config, file }: LoadedConfig,
  standard: string,
  choices: ReadonlyMap<string, unknown>,
): ServedModels['aliases'] {
  const given = config.server?.model_aliases;
  if (!given) return undefined;
  const entries = new Set([...choices.keys(), ...modelEntries(config).keys()]);
  const aliases: Record<string, string> = {};
  for (const [alias, target] of Object.entries(given)) {
    const name = target === 'default' ? standard : target;
    if (choices.has(name)) aliases[alias] = name;
    else if (!entries.has(name)) {
      throw new CommandError(
        `${file}: server.model_aliases maps ${JSON.stringify(alias)} to ${JSON.stringify(target)}, which is not a model.` +
          `${didYouMean(target, [...entries])} Models: default, ${[...entries].join(', ')}.`,
      );
    }
  }
  return aliases;
}

/** What a person sees who starts the server on a terminal. */
export function welcomeText(server: {
  readonly url: string;
  readonly models: readonly string[];
  readonly default: string;
  readonly options: ServeOptions;
  /** Where it stores, without a password. */
  readonly store: string;
}): string {
  const { url, options } = server;
  const hasKeys = (options.keys ?? []).length > 0;
  const others = server.models.filter((name) => name !== server.default);
  const tools = (options.tools ?? []).map(({ name }) => name);
  const defaults = options.defaultTools ?? [];
  const offer = defaults.length > 0 ? `every request gets ${defaults.join(', ')}` : 'for requests that ask for them';
  return [
    `Models: ${[`${server.default} (default)`, ...others].join(', ')}`,
    ...(tools.length > 0 ? [`Tools:  ${tools.join(', ')}; ${offer}`] : []),
    `Store:  ${server.store}`,
    '',
    `Point any OpenAI client at ${url}/v1${hasKeys ? ', with one of your keys' : '; any key will do'}. Or try:`,
    `  ${curlCommand(url, { model: server.default, hasKeys, hasTools: tools.includes('glob') })}`,
    'Press Ctrl-C to stop.',
  ].join('\n');
}

function curlCommand(
  url: string,
  { model, hasKeys, hasTools }: { readonly model: string; readonly hasKeys: boolean; readonly hasTools: boolean },
): string {
  const body = {
    model,
    input: hasTools ? 'List the files' : 'Hello',
    ...(hasTools && { tools: [{ type: 'mcp', server_label: 'treadle' }] }),
  };
  return [
    `curl ${url}/v1/responses -H 'Content-Type: application/json'`,
    ...(hasKeys ? ['-H "Authorization: Bearer $TREADLE_KEY"'] : []),
    `-d '${JSON.stringify(body).replaceAll("'", `'\\''`)}'`,
  ].join(' ');
}
