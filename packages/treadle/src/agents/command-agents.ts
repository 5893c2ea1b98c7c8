import { existsSync } from 'node:fs';
import { TreadleError, type ContinueOptions, type Journal, type Model, type Policy, type Tool } from '@treadle/core';
import type { AgentBounds, AgentHost, NamedAgent, WorkflowHost } from '@treadle/core/named-agents';
import type { Memory } from '@treadle/core/memory';
import type { Skill } from '@treadle/core/skills';
import type { CallableAgents } from '@treadle/tools';
import type { AgentFileProblem, FolderAgents } from '@treadle/tools/agents';
import { CommandError } from '../command-line/command.ts';
import { agentFolders, workflowFolders } from '../config/agents.ts';
import { chooseModel } from '../config/choose-model.ts';
import type { ConfiguredPlace } from '../config/skill-folders.ts';
import { openModel } from '../models/open-model.ts';
import type { Io } from '../terminal/io.ts';
import { exactLine } from '../terminal/printable.ts';
import { plural } from '../terminal/quantities.ts';

/* The agents of the command: where their definitions are, and what runs get of them. */

/** Undefined if no folder with agents exists, and none may be written: reading them loads a parser. */
export async function openAgents(place: ConfiguredPlace): Promise<FolderAgents | undefined> {
  const folders = agentFolders(place);
  const workflows = workflowFolders(place);
  const { default: byDefault, write = false } = place.loaded.config.agents ?? {};
  if (!write && ![...folders, ...workflows].some((folder) => existsSync(folder))) return undefined;
  const { folderAgents } = await import('@treadle/tools/agents');
  return folderAgents({ folders, workflows, ...(byDefault !== undefined && { default: byDefault }) });
}

/** The agent of this name. Throws with the nearest one, and says how to write one if there are none. */
export async function findAgent(registry: FolderAgents | undefined, name: string): Promise<NamedAgent> {
  const { agentNamed } = await import('@treadle/core/named-agents');
  try {
    return agentNamed(registry ?? NO_AGENTS, name);
  } catch (error) {
    if (!(error instanceof TreadleError)) throw error;
    const broken = registry?.problems().find(({ file }) => file.replace(/^.*[/\\]|\.\w+$/g, '') === name);
    if (broken) throw new CommandError(`The agent "${name}" is not used: ${problemText(broken)}`);
    const hint = registry === undefined ? ` "treadle agents new ${exactLine(name)}" writes one.` : '';
    throw new CommandError(`${error.message}${hint}`);
  }
}

const NO_AGENTS = { list: () => [], get: () => undefined, onChange: () => () => {} };

export function problemText({ file, line, key, message }: AgentFileProblem): string {
  const at = [file, ...(line === undefined ? [] : [`line ${line}`]), ...(key === undefined ? [] : [key])].join(', ');
  return exactLine(`${at}: ${message}`);
}

/** One line about files that are not used. Without any agents, the folder may be for something else. */
export function unusedNotice(registry: FolderAgents): readonly string[] {
  const files = new Set(registry.problems().map(({ file }) => file)).size;
  if (files === 0 || registry.list().length === 0) return [];
  return [
    `${plural(files, 'file')} of agents ${files === 1 ? 'is' : 'are'} not used. "treadle agents check" says why.`,
  ];
}

/** Opens the models that agents name. One that cannot be opened is an error of the agent that uses it. */
async function openAgentModels(
  agents: readonly NamedAgent[],
  { loaded }: ConfiguredPlace,
  env: Io['env'],
): Promise<ReadonlyMap<string, Model | Error>> {
  const names = [...new Set(agents.flatMap(({ model }) => model ?? []))];
  const opened = await Promise.all(
    names.map(async (name): Promise<readonly [string, Model | Error]> => {
      try {
        return [name, await openModel(chooseModel({ model: name }, loaded, env))];
      } catch (error) {
        return [name, error as Error];
      }
    }),
  );
  return new Map(opened);
}

/** What the command gives to the agents that it runs, as it is now. */
export interface AgentParts {
  readonly model: Model;
  readonly tools: readonly Tool[];
  readonly policy: Policy;
  readonly skills: readonly Skill[];
  /** For agents with `memory`. Absent: it is off. */
  readonly memory?: Memory | undefined;
  /** Those of flags and configuration. */
  readonly bounds: AgentBounds;
}

/** The agents of a session. */
export interface SessionAgents {
  readonly registry: FolderAgents;
  host(): AgentHost;
  /** For the tools that call agents. */
  readonly callable: CallableAgents;
  /** Reads what has changed. */
  reload(): Promise<void>;
}

export async function sessionAgents(
  registry: FolderAgents,
  place: ConfiguredPlace,
  { env, parts }: { readonly env: Io['env']; readonly parts: () => AgentParts },
): Promise<SessionAgents> {
  const { agentHost } = await import('@treadle/core/named-agents');
  const { max_depth: maxDepth } = place.loaded.config.agents ?? {};
  let models = await openAgentModels(registry.list(), place, env);
  let workflows = await workflowsOf(registry.list());
  const host = (): AgentHost => {
    const { model: byDefault, memory, ...given } = parts();
    return agentHost({
      ...given,
      ...(memory && { memory }),
      registry,
      ...(workflows && { workflows }),
      ...(maxDepth !== undefined && { maxDepth }),
      model(name) {
        const model = name === undefined ? byDefault : models.get(name);
        if (model && !(model instanceof Error)) return model;
        throw model ?? new CommandError(`The model ${JSON.stringify(name)} was not opened. Start again to use it.`);
      },
    });
  };
  const callable: CallableAgents = {
    list: () => registry.list(),
    tool: (name) => host().agentTool!(name),
    models: [...models.values()].filter((one): one is Model => !(one instanceof Error)),
  };
  return {
    registry,
    host,
    callable,
    async reload() {
      await registry.reload();
      models = await openAgentModels(registry.list(), place, env);
      workflows = await workflowsOf(registry.list());
    },
  };
}

/** What runs workflows; undefined without any, so that CEL is not loaded. */
async function workflowsOf(agents: readonly NamedAgent[]): Promise<WorkflowHost | undefined> {
  if (!agents.some(({ workflow }) => workflow)) return undefined;
  return (await import('@treadle/tools/workflows')).workflowHost();
}

/** What the run of an agent is resumed with, by the definition that it was started with; undefined for other runs. */
export async function resumedAgent(
  journal: Journal,
  runId: string,
  { registry, host }: SessionAgents,
  model: Model,
): Promise<
  | { readonly options: Pick<ContinueOptions, 'model' | 'tools' | 'agents'>; readonly notice: string | undefined }
  | undefined
> {
  const { agentChange, agentModel, agentTools, pinnedAgent } = await import('@treadle/core/named-agents');
  const pinned = await pinnedAgent(journal, runId);
  if (!pinned) return undefined;
  // The workflow may not be in its folder any more.
  const workflows = await workflowsOf([pinned]);
  const parts = { ...host(), ...(workflows && { workflows }) };
  return {
    options: { ...agentTools(pinned, parts), model: agentModel(pinned, { ...parts, model: () => model }) },
    notice: agentChange(pinned, registry),
  };
}

/** For a place without a folder of agents. */
export async function noAgents(): Promise<FolderAgents> {
  const { folderAgents } = await import('@treadle/tools/agents');
  return folderAgents({ folders: [] });
}
