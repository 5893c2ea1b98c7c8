import { defineCommand, EXIT, type Command } from '../command-line/command.ts';
import { KEY_NOTE, LOCATION_FLAGS, MODEL_FLAGS, RULE_FLAGS } from '../command-line/flags.ts';
import { chooseModel } from '../config/choose-model.ts';
import { resolveContext } from '../config/context.ts';
import { loadHooks } from '../config/hooks.ts';
import { openServerStore } from '../config/store.ts';
import { openRunMemory } from '../memory/run-memory.ts';
import { openModel } from '../models/open-model.ts';
import { commandPolicy } from '../policy/command-policy.ts';
import { userName } from '../run/ask-approval.ts';
import { catchStopSignal } from '../terminal/signals.ts';
import { openAgents, sessionAgents, unusedNotice, type AgentParts } from '../agents/command-agents.ts';
import { openSkills } from '../skills/open-skills.ts';
import { skillRegistry } from '../skills/mcp-skills.ts';
import { chooseTools, NO_PLACE, sandboxFor } from '../tools/command-tools.ts';
import { version } from '../version.ts';

export const mcpServeCommand: Command = defineCommand({
  name: 'mcp serve',
  summary: 'Serve the tools of the working folder to an MCP client, over standard input and output',
  flags: {
    tools: {
      type: 'text',
      value: 'LIST',
      help: 'Tools for the client: read-only (default), coding, or names such as read,bash',
    },
    'no-agents': { type: 'switch', help: 'Do not offer the agents of the working folder as tools' },
    'trust-skills': RULE_FLAGS['trust-skills'],
    ...MODEL_FLAGS,
    ...LOCATION_FLAGS,
  },
  notes: [
    'For the configuration of an MCP client: the command is "treadle", with the arguments "mcp" and "serve". The policy of\n' +
      'treadle.toml applies to every call. What it asks about, the client asks its user (elicitation); a client that cannot\n' +
      'ask gets an error. Each call is a run in the store, and the client can read the runs as resources. Skills are prompts and\n' +
      'resources of the server.',
    'Agents ("treadle agents list") are tools with the names agent_NAME. They can be given the tools of --tools, and no others.\n' +
      'Only they and the tool "task" need a model. "treadle serve" serves the same over HTTP, at /mcp.',
    'Standard output carries the protocol alone. A line about the sandbox and the log, as JSON lines, go to standard error.\n' +
      'The command ends when its standard input is closed, and at SIGINT and SIGTERM.',
    KEY_NOTE,
  ],
  examples: ['treadle mcp serve', 'treadle mcp serve --tools coding --cwd ~/project'],
  async run({ values }, io) {
    const { skills, context, notices } = await openSkills(await resolveContext(values, io), {
      trust: values['trust-skills'] === true,
    });
    const { loaded, folder } = context;
    const { orchestrator = {}, server = {} } = loaded.config;
    const words = values.tools?.split(',').map((word) => word.trim()) ?? ['read-only'];
    const registry = values['no-agents'] ? undefined : await openAgents(context);
    const agents = registry?.list() ?? [];
    const needsModel = words.includes('coding') || words.includes('task') || agents.length > 0;
    const model = needsModel ? await openModel(chooseModel(values, loaded, io.env)) : NO_PLACE.model;
    const sandbox = await sandboxFor(context, words);
    const { newLog } = await import('@treadle/server');
    const { mcpStdioServer } = await import('@treadle/server/mcp');
    const log = newLog({ to: io.stderr, level: server.log_level ?? 'warn' });
    const memory = await openRunMemory(context, io.env, (problem) => log.warn(problem));
    const chosen = chooseTools(context, { model, canAnswer: true, sandbox, memory }, { words, from: '--tools' });
    if (sandbox) io.stderr.write(`${sandbox.notice}\n`);
    const unused = registry ? unusedNotice(registry) : [];
    if (memory?.notice) log.warn(memory.notice);
    for (const notice of [...context.packages.problems, ...notices, ...unused]) log.warn(notice);
    // Last, so that a command that cannot run does not create files.
    const store = await openServerStore(context.store);
    memory?.attach(store);
    const stop = catchStopSignal(io);
    try {
      const policy = commandPolicy(context, 'policy', { rates: store.rates });
      const parts = (): AgentParts => ({ model, tools: chosen, policy, skills, memory, bounds: {} });
      const named = registry && (await sessionAgents(registry, context, { env: io.env, parts }));
      const tools = [...chosen, ...agents.flatMap(({ name }) => named?.callable.tool(name) ?? [])];
      const connection = mcpStdioServer({
        version: version(),
        instructions: `The tools act in the folder ${folder}.`,
        store,
        tools,
        ...skillRegistry(skills),
        policy,
        user: userName(),
        log,
        stdin: io.stdin,
        stdout: io.stdout,
        ...(orchestrator.default_tool_timeout_ms !== undefined && {
          toolTimeoutMs: orchestrator.default_tool_timeout_ms,
        }),
        ...(await loadHooks(loaded)),
        ...(server.max_duration_ms !== undefined && { maxDurationMs: server.max_duration_ms }),
      });
      void stop.received.then(() => connection.close());
      await connection.closed;
      return EXIT.completed;
    } finally {
      await store.close();
      stop.release();
    }
  },
});
