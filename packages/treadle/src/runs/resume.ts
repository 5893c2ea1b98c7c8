import { forkRun, runLoop, tool, TreadleError, waiting } from '@treadle/core';
import type {
  Answer,
  ForkChanges,
  Ledger,
  Model,
  RunStore,
  RunSummary,
  StartedRun,
  State,
  Tool,
  ToolFacts,
  Waiting,
} from '@treadle/core';
import type { WorkflowAgent } from '@treadle/tools/workflows';
import { CommandError, type Command, type Values } from '../command-line/command.ts';
import {
  followUpCommand,
  locationOf,
  LOG_FLAGS,
  MODEL_FLAGS,
  OUTPUT_FLAGS,
  RULE_FLAGS,
  YES_FLAG,
} from '../command-line/flags.ts';
import { openLedgers } from '../config/budgets.ts';
import { chooseModel, chooseModelOf } from '../config/choose-model.ts';
import type { Config } from '../config/config.ts';
import type { CommandContext } from '../config/context.ts';
import { loadHooks } from '../config/hooks.ts';
import { openRunMemory } from '../memory/run-memory.ts';
import { openModel } from '../models/open-model.ts';
import { DEVICE_LABEL, openDeviceSession } from '../edge/device-session.ts';
import { commandPolicy, isApplicable, requestExplainer, resumedPolicy } from '../policy/command-policy.ts';
import { waitingText } from '../run/outcome-text.ts';
import { canAskOn, runAndReport, runScreen } from '../run/run-and-report.ts';
import { userName } from '../run/ask-approval.ts';
import { killProcess } from '../run/drive-run.ts';
import { namesOtherFolder, toolList } from '../run/session.ts';
import { coloursFor } from '../terminal/colours.ts';
import type { Io } from '../terminal/io.ts';
import { exactLine } from '../terminal/printable.ts';
import { plural } from '../terminal/quantities.ts';
import { openMcpTools, serverEntries, splitToolList, toolsForTasks } from '../mcp/servers.ts';
import { skillToolFor } from '../skills/command-skills.ts';
import { openSkills } from '../skills/open-skills.ts';
import { findAgent, noAgents, openAgents, resumedAgent, sessionAgents } from '../agents/command-agents.ts';
import { chooseTools, commandTools, recordedTools, sandboxFor } from '../tools/command-tools.ts';
import { stateAfter } from './journal.ts';
import { descendantsOf, findRun, isChild, readRun, runsCommand, shortId } from './store-access.ts';
import type { RunsRequest, StoredRun } from './store-access.ts';

const DRIVE_FLAGS = {
  ...YES_FLAG,
  'accept-changed-tools': { type: 'switch', help: 'Continue with the tools of a new run, if those of the run differ' },
  'trust-skills': RULE_FLAGS['trust-skills'],
  ...MODEL_FLAGS,
  ...OUTPUT_FLAGS,
  ...LOG_FLAGS,
} as const;

const ANSWER_FLAGS = {
  approve: { type: 'text', value: 'EFFECT', many: true, help: 'Approve a call, such as t1.approval.0, or "all"' },
  deny: { type: 'text', value: 'EFFECT', many: true, help: 'Deny a call, or "all"' },
  answer: {
    type: 'text',
    value: 'EFFECT=TEXT',
    many: true,
    help: 'Answer a question, or provide the result of a client-executed call',
  },
} as const;

export const resumeCommand: Command = runsCommand('resume ID', {
  summary: 'Resume a run that is interrupted or paused, or that failed because of its model',
  flags: { ...ANSWER_FLAGS, ...DRIVE_FLAGS },
  details:
    'Works like "treadle run", with the rules that the run was started with: on a terminal it asks for approvals, without\n' +
    'one it pauses again. A call that has a result is not executed again. An outstanding call is repeated only if its tool\n' +
    'allows that.\n\n' +
    'The model is the one that the run was started with, if the configuration has it. Otherwise name one with --model.',
  examples: ['treadle runs resume 1a2b', 'treadle runs resume 1a2b --approve t1.approval.0'],
  async run(request) {
    const run = await readRun(request.store, request.args[0]!);
    const state = await stateAfter(run);
    rejectEndedRun(run, state);
    rejectForeignRun(state, request.context, run);
    return resumeRun(request, state, answersFor(state, request.values));
  },
});

export const forkCommand: Command = runsCommand('fork ID', {
  summary: 'Copy a run up to one of its entries, and continue the copy with changes',
  flags: {
    at: { type: 'count', value: 'N', min: 0, help: 'The last entry to copy; default: the one that --result replaces' },
    step: { type: 'text', value: 'ID', help: 'Of a workflow: copy what was done before this step, instead of --at' },
    'current-definition': { type: 'switch', help: 'Of a workflow: its definition as it is now' },
    input: {
      type: 'text',
      value: 'TEXT',
      help: 'New text of the last message of the user; of a workflow, its inputs as JSON',
    },
    instructions: { type: 'text', value: 'TEXT', help: 'New instructions' },
    result: { type: 'text', value: 'EFFECT=TEXT', many: true, help: 'New result for a copied call, such as t1.tool.0' },
    'no-tools': { type: 'switch', help: 'Continue without tools' },
    'no-run': { type: 'switch', help: 'Create the fork and print its id, but do not run it' },
    ...DRIVE_FLAGS,
  },
  details:
    'The original run does not change. Results that it got after that entry are copied for outstanding calls, so that no\n' +
    'call is executed twice; the model is called again if anything changed. --model also changes the model.',
  examples: [
    'treadle runs fork 1a2b --result t1.tool.0="the file is empty"',
    'treadle runs fork 1a2b --at 4 --model openai/MODEL --instructions "Answer in French."',
    'treadle runs fork 1a2b --step save --current-definition',
  ],
  async run(request) {
    const { values, store, context, io, print, note } = request;
    const run = await readRun(store, request.args[0]!);
    const results = parsePairs('--result', values.result);
    const step = values.step === undefined ? undefined : await entryBeforeStepOf(run, values);
    const at = step ?? values.at ?? lastEntryOf(run, results);
    // Check everything before the fork is created, so that an error does not leave a fork behind.
    const state = await stateAfter(run, at);
    if (!values['no-run']) rejectForeignRun(state, context, run);
    const needsModel = values.model !== undefined || !values['no-run'];
    const choice = needsModel ? chooseModelOf(ownModel(state), values, context.loaded, io.env) : undefined;
    const model = values.model !== undefined && choice ? (await openModel(choice)).id : state.model;
    const changes = {
      ...(values.instructions !== undefined && { instructions: values.instructions }),
      ...(values.input !== undefined && { input: values.input }),
      ...(values['current-definition'] && (await currentDefinition(run, context, io))),
      ...(values['no-tools'] && { tools: [] }),
      ...(results.length > 0 && { results: Object.fromEntries(results) }),
      ...(model !== state.model && { model }),
    };
    const fork = await forkRun({ journal: store, runId: state.runId, at, changes });
    if (values['no-run']) return print(fork);
    note(`Forked ${shortId(state.runId)} after entry ${at}: ${fork}`);
    return resumeRun(request, await stateAfter(await readRun(store, fork)));
  },
});

async function pinnedWorkflow(run: StoredRun, flag: string): Promise<WorkflowAgent> {
  const { recordedAgent } = await import('@treadle/core/named-agents');
  const { isWorkflow } = await import('@treadle/tools/workflows');
  const [first] = run.entries;
  const agent = recordedAgent((first?.event as { readonly definition?: unknown } | undefined)?.definition);
  if (isWorkflow(agent)) return agent;
  throw new CommandError(`The run ${shortId(run.summary.runId)} is not that of a workflow. Omit ${flag}.`);
}

async function entryBeforeStepOf(
  run: StoredRun,
  { at, step = '' }: { readonly at?: number; readonly step?: string },
): Promise<number> {
  if (at !== undefined) throw new CommandError('--step and --at cannot be combined.');
  const { entryBeforeStep, flowOf } = await import('@treadle/tools/workflows');
  const found = entryBeforeStep(run.entries, flowOf(await pinnedWorkflow(run, '--step')), step);
  if (found !== undefined) return found;
  throw new CommandError(`The run has not come to a step "${exactLine(step)}", or has undone what it did.`);
}

/** What a fork records that uses the definition of its workflow as it is now. */
async function currentDefinition(
  run: StoredRun,
  context: CommandContext,
  { env }: Io,
): Promise<Pick<ForkChanges, 'definition' | 'program' | 'tools'>> {
  const { name } = await pinnedWorkflow(run, '--current-definition');
  const { agentModel, agentTools } = await import('@treadle/core/named-agents');
  const registry = (await openAgents(context)) ?? (await noAgents());
  const agent = await findAgent(registry, name);
  if (!agent.workflow) throw new CommandError(`"${name}" is an agent now, and not a workflow.`);
  const model = await openModel(chooseModel({ model: 'demo' }, context.loaded, env));
  const tools = commandTools(context);
  const policy = commandPolicy(context, 'policy');
  const { host } = await sessionAgents(registry, context, {
    env,
    parts: () => ({ model, tools, policy, skills: [], bounds: {} }),
  });
  return { definition: agent, program: agentModel(agent, host()).program, tools: agentTools(agent, host()).tools };
}

export const cancelCommand: Command = runsCommand('cancel ID', {
  summary: 'Cancel a run that is interrupted or paused',
  details:
    'Calls without a result get an error result, and child runs are cancelled too. To stop a run that a process drives,\n' +
    'press Ctrl-C where it was started.',
  examples: ['treadle runs cancel 1a2b'],
  async run({ store, args, note }) {
    const { summary } = await readRun(store, args[0]!);
    const id = shortId(summary.runId);
    const children = (await descendantsOf(store, summary.runId)).filter((child) => !hasEnded(child));
    const whichChildren = plural(children.length, 'child run');
    if (!hasEnded(summary)) {
      await cancelRun(store, summary);
      return note(`Cancelled ${id}${children.length === 0 ? '' : ` and ${whichChildren}`}.`);
    }
    // A process that dies while it cancels a run may leave child runs that are open.
    if (children.length === 0) throw new CommandError(`Run ${id} has already ended (${summary.status}).`);
    for (const child of children) await cancelRun(store, child);
    note(`Run ${id} had already ended (${summary.status}). Cancelled ${whichChildren}.`);
  },
});

export const releaseCommand: Command = runsCommand('release ID', {
  summary: 'Free a run whose process has died or is stuck, so that it can be resumed',
  flags: { force: { type: 'switch', help: 'Free the run although its process is alive' } },
  details:
    'A process of this machine that has died needs no release: "treadle runs resume" takes over its run. A process of\n' +
    'another host or container is watched for a lease time (30 s), and the run is freed if it shows no sign of life.\n\n' +
    'A live process of this machine keeps its run, also if it is suspended or busy. End it, or use --force. After --force\n' +
    'it can write nothing more, and aborts its calls when it notices, but a call that it is making may still take effect.',
  examples: ['treadle runs release 1a2b', 'treadle runs release 1a2b --force'],
  async run({ values, args, store, note }) {
    const { runId } = await findRun(store, args[0]!);
    const id = shortId(runId);
    const released = await store.releaseRun(runId, { force: values.force === true });
    if (!released) return note(`No process drives ${id}.`);
    note(`Released ${id}.\nResume with: ${followUpCommand(['runs', 'resume', id], locationOf(values))}`);
  },
});

/** Resumes a run of the store as `treadle run` would. Returns the exit code. */
async function resumeRun(
  { store, context: found, values, io, note }: RunsRequest<Values<typeof DRIVE_FLAGS>>,
  state: State,
  answers: readonly Answer[] = [],
): Promise<number> {
  const recorded = state.nextTools ?? state.tools;
  const names = new Set(recorded.map(({ name }) => name));
  const isOfAgent = hasDefinition(await readRun(store, state.runId));
  const usesSkills = names.has('skill') || isOfAgent;
  const { skills, context, notices } = await openSkills(found, { trust: values['trust-skills'] === true });
  if (usesSkills && !values.quiet) for (const notice of notices) note(notice);
  const choice = chooseModelOf(ownModel(state), values, context.loaded, io.env);
  if (!values.quiet && choice.notice) note(choice.notice);
  if (!values.quiet && namesOtherFolder(state.instructions, context.folder)) {
    note(`The run was started in another working folder. Its tools now act in ${context.folder}; --cwd changes that.`);
  }
  const model = await openModel(choice);
  const memory = await openRunMemory(context, io.env, note);
  memory?.attach(store);
  if (!values.quiet && memory?.notice) note(memory.notice);
  const list = splitToolList(context, toolList(context));
  // An agent may call others, which have tools of their own.
  const sandbox = await sandboxFor(context, isOfAgent ? list.words : state.tools.map(({ name }) => name));
  if (!values.quiet && sandbox) note(sandbox.notice);
  const callsAgents = recorded.some(callsNamedAgents);
  const named =
    isOfAgent || callsAgents
      ? await sessionAgents((await openAgents(context)) ?? (await noAgents()), context, {
          env: io.env,
          parts: () => ({ model, tools: allTools(), policy, skills: skills ?? [], memory, bounds: {} }),
        })
      : undefined;
  const callable = callsAgents ? named?.callable : undefined;
  const place = { model, canAnswer: canAskOn(io), sandbox, agents: callable, memory };
  const [summary] = await store.list({ runId: state.runId, limit: 1 });
  const on = summary?.labels?.[DEVICE_LABEL];
  const device = on === undefined ? undefined : await openDeviceSession(context, io.env, on);
  const at = device && { place: device.place };
  const policy = resumedPolicy(context, state, { rates: store.rates, yes: values.yes === true, ...at });
  const acceptChangedTools = values['accept-changed-tools'] === true;
  const remembering = memory?.tools ?? [];
  const own = new Set([...[...commandTools(context), ...remembering].map(({ name }) => name), 'skill', 'agents_list']);
  const isOther = (name: string): boolean =>
    !own.has(name) && !/^(read_result|agent_|workflow_|hand_off_to_)/.test(name);
  const usesMcp = [...names].some(isOther);
  const servers = acceptChangedTools ? list.servers : usesMcp ? [...serverEntries(context).keys()] : [];
  const mcp = await openMcpTools(context, io.env, { taken: [...own], names: servers });
  const allTools = (): readonly Tool[] => {
    const chosen = chooseTools(context, { ...place, mcp: toolsForTasks(mcp) }, list);
    return [...chosen, ...ofSkills, ...mcp.all()];
  };
  let ofSkills: readonly Tool[] = [];
  try {
    if (!values.quiet) for (const problem of mcp.problems) note(problem);
    const inTasks = { ...place, mcp: toolsForTasks(mcp) };
    const offered = new Set([...names, ...mcp.offered().map(({ name }) => name)]);
    const chosen = acceptChangedTools ? chooseTools(context, inTasks, list) : recordedTools(context, inTasks, recorded);
    if (names.has('skill')) {
      ofSkills = [await skillToolFor(skills, { model, tools: [...chosen, ...inTasks.mcp] })];
    }
    const ownTools = [...chosen, ...ofSkills];
    const all = mcp.all();
    const agent = isOfAgent && named && (await resumedAgent(store, state.runId, named, model));
    if (agent && agent.notice !== undefined && !values.quiet) note(agent.notice);
    const tools = agent
      ? agent.options.tools!
      : [
          ...(device ? ownTools.filter(({ name }) => !device.tools.some((one) => one.name === name)) : ownTools),
          ...(acceptChangedTools ? all.filter(({ name }) => offered.has(name)) : all),
          ...(device?.tools ?? []),
        ];
    const { budgets = [] } = context.loaded.config.orchestrator ?? {};
    const ledger = state.rules.budgeted && (await openLedgers(context.loaded.config, store.budgets))(budgets);
    const start = {
      runId: state.runId,
      ...(ledger && { ledger }),
      ...(await loadHooks(context.loaded)),
      answers,
      model,
      tools,
      ...(agent && agent.options),
      policy,
      acceptChangedTools,
      // Calls of a server that is away fail until it is back.
      ...(mcp.problems.length > 0 && { keepMissingTools: true }),
    };
    const explain = requestExplainer(policy, () => tools, coloursFor(io.stderr, io.env));
    // The tools of an agent are those that its definition names.
    const follow = agent ? {} : { follow: (live: StartedRun): void => mcp.follow(live, ownTools) };
    const screen = runScreen(io, { ...values, answerOnly: state.rules.output !== undefined });
    return await runAndReport({ start, ...follow, store, context, values, io, screen, explain });
  } catch (error) {
    if (!(error instanceof TreadleError) || error.code !== 'tools-changed') throw error;
    throw new CommandError(`${error.message}\nOn the command line, use --accept-changed-tools.`);
  } finally {
    await mcp.close();
    await device?.close();
  }
}

/** The model of a run. A workflow has none of its own: its agents use the default one. */
function ownModel({ model, program }: State): string | undefined {
  return program === undefined ? model : undefined;
}

function rejectEndedRun({ summary }: StoredRun, { phase }: State): void {
  const id = shortId(summary.runId);
  if (isChild(summary)) {
    const parent = shortId(summary.parent!);
    throw new CommandError(`Run ${id} is a child of ${parent} and resumes with it: resume ${parent}.`);
  }
  if (phase.type !== 'ended' || phase.effect !== undefined) return;
  throw new CommandError(
    `Run ${id} has ended (${phase.outcome.type}), so it cannot be resumed. "treadle runs show ${id}" shows it, ` +
      `"treadle runs fork ${id} --at N" continues a copy from one of its entries.`,
  );
}

/** Throws for a run that needs code of the program that started it: resumed without that code, it would fail. */
function rejectForeignRun(state: State, { loaded }: CommandContext, run: StoredRun): void {
  const reason = foreignRunReason(state, loaded.config, hasDefinition(run));
  if (reason === undefined) return;
  throw new CommandError(`Run ${shortId(state.runId)} ${reason}. Resume it from that program.`);
}

/** Whether a tool of a run can call agents by name. */
function callsNamedAgents({ name, parameters }: ToolFacts): boolean {
  const { properties = {} } = parameters as { readonly properties?: Readonly<Record<string, unknown>> };
  return name === 'task' && Object.hasOwn(properties, 'agent');
}

/** Whether a run has recorded the definition of its agent. */
export function hasDefinition({ entries: [first] }: StoredRun): boolean {
  return first?.event.type === 'run-started' && first.event.definition !== undefined;
}

/** Why only the program that started a run can resume it; undefined if the command can. `isOfAgent`: see `hasDefinition`. */
export function foreignRunReason(
  { rules, policies = [], handedTo, handoff, program }: State,
  { orchestrator: { budgets = [] } = {}, hooks }: Pick<Config, 'orchestrator' | 'hooks'> = {},
  isOfAgent = false,
): string | undefined {
  // The definition of a workflow is all that its program is made of.
  if (program !== undefined && !isOfAgent) return 'has code of another program as its model';
  if (rules.agent) return `belongs to the agent "${rules.agent.name}" of another program`;
  if (rules.prepared) return 'was started by a program that prepares each turn in code';
  if (rules.budgeted && budgets.length === 0) {
    return 'was started with budgets, and budgets in [orchestrator] names none';
  }
  if (rules.guardrails && hooks?.module === undefined) {
    return 'was started with guardrails, which are code, and module in [hooks] is not set';
  }
  const agent = handoff?.agent ?? handedTo;
  if (agent !== undefined && !isOfAgent) return `is with the agent "${agent}" of another program`;
  // Only code can apply rules, and the stricter of those and the current ones has to apply.
  return policies.every(isApplicable) ? undefined : 'has a policy with rules that only its program can apply';
}

function answersFor(state: State, values: Values<typeof ANSWER_FLAGS>): readonly Answer[] {
  const waits = waiting(state);
  const approvals = waits.filter((wait) => wait.type === 'approval');
  const findApproval = (effect: string): (typeof approvals)[number] => {
    const found = approvals.find((one) => one.effect === effect);
    if (found) return found;
    const list = waits.map((wait) => `\n  ${wait.effect}: ${waitingText(wait)}`).join('') || ' nothing.';
    const problem = `Run ${shortId(state.runId)} does not wait for approval ${JSON.stringify(effect)}`;
    throw new CommandError(`${problem}. It waits for:${list}`);
  };
  const decide = (effects: readonly string[] = [], approved: boolean): readonly Answer[] => {
    const decided = effects.includes('all') ? approvals : effects.map(findApproval);
    return decided.map(({ effect, digest }) => ({ type: 'approval', effect, digest, approved, by: userName() }));
  };
  const results = parsePairs('--answer', values.answer);
  return [
    ...decide(values.approve, true),
    ...decide(values.deny, false),
    ...results.map(([effect, text]) => textAnswer(waits, effect, text)),
  ];
}

/** The answer to a question, as JSON if it has a schema; or the result of a call that the client executes. */
function textAnswer(waits: readonly Waiting[], effect: string, text: string): Answer {
  const wait = waits.find((one) => one.effect === effect);
  if (wait?.type !== 'question') return { type: 'result', effect, content: text };
  const { schema } = wait.question;
  return { type: 'answer', effect, value: schema ? jsonOf(effect, text) : text, by: userName() };
}

function jsonOf(effect: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new CommandError(`The answer for ${effect} is not JSON, and the question has a schema. Give a JSON value.`);
  }
}

/** The values of a flag that takes EFFECT=TEXT. The text may be empty and may contain `=`. */
function parsePairs(flag: string, pairs: readonly string[] = []): readonly (readonly [effect: string, text: string])[] {
  return pairs.map((pair) => {
    const at = pair.indexOf('=');
    if (at > 0) return [pair.slice(0, at), pair.slice(at + 1)];
    throw new CommandError(`${flag} cannot be ${JSON.stringify(pair)}. It takes EFFECT=TEXT, such as t1.tool.0=hello.`);
  });
}

/** The entry of the last result that is to be replaced; the last entry if there is no such result, which the fork then reports. */
function lastEntryOf({ summary, entries }: StoredRun, results: ReturnType<typeof parsePairs>): number {
  const effects = new Set(results.map(([effect]) => effect));
  const at = entries.findLastIndex(
    ({ event }) => (event.type === 'tool-settled' || event.type === 'client-result-given') && effects.has(event.effect),
  );
  if (effects.size > 0) return at < 0 ? entries.length - 1 : at;
  const show = `"treadle runs show ${shortId(summary.runId)}" shows the entries`;
  throw new CommandError(`--at N is missing. It takes the last entry to copy, 0 to ${entries.length - 1}. ${show}.`);
}

function hasEnded({ status }: RunSummary): boolean {
  return status !== 'running' && status !== 'paused';
}

/** Cancels a run and its child runs. */
async function cancelRun(store: RunStore, { runId }: RunSummary): Promise<void> {
  const { tools: offered, nextTools = offered, handedTo, handoff } = await stateAfter(await readRun(store, runId));
  const model: Model = { id: 'unused', reply: unused };
  const tools = nextTools.map(unusedTool);
  const name = handoff?.agent ?? handedTo;
  const agents = name === undefined ? [] : [{ name, tools }];
  // It needs what it was started with, although nothing of it is used.
  const ledger: Ledger = { reserve: unused, settle() {}, release() {} };
  const guardrails = { input: [unused], output: [unused] };
  const signal = AbortSignal.abort();
  await runLoop({ runId, journal: store, model, tools, agents, ledger, guardrails, killProcess, signal });
}

function unusedTool({ name, description, parameters, effect, client }: ToolFacts): Tool {
  return tool({ name, description, input: parameters, effect, ...(!client && { execute: unused }) });
}

function unused(): never {
  throw new Error('A cancelled run calls neither its model nor a tool.');
}
