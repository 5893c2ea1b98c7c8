import {
  checkNamedAgent,
  inputSchema,
  isAgentName,
  type AgentProblem,
  type NamedAgent,
} from '@treadle/core/named-agents';
import { didYouMean } from '@treadle/core/nearest';
import { agentFormat, jsonProblem, keyText, lineAt, plainOf, type ParsedAgentFile } from '../agents/parse-agent.ts';
import { yamlTable } from '../yaml-table.ts';
import { compileWorkflow, type Flow, type WorkflowDefinition } from './definition.ts';
import { targetsOf } from './tools.ts';

/*
 * Files with the definition of a workflow: YAML or JSON. A workflow is an agent whose model is a program, so it has inputs, it is
 * invoked by its name, and agents can call it. What is wrong is reported with its line and key.
 */

export type { WorkflowDefinition };

/** A workflow among agents. */
export interface WorkflowAgent extends NamedAgent {
  readonly workflow: WorkflowDefinition;
}

/** Of a recorded definition it is taken for granted, since it was checked before the run was started. */
export function isWorkflow(agent: NamedAgent | undefined): agent is WorkflowAgent {
  return agent?.workflow !== undefined;
}

/** Whether a file has a workflow, by its name. */
export function isWorkflowFile(name: string): boolean {
  const format = agentFormat(name);
  return format === 'yaml' || format === 'json';
}

const KEYS = ['name', 'version', 'description', 'inputs', 'outputs', 'limit', 'undo_on', 'steps'] as const;

export type CheckedWorkflow =
  | { readonly type: 'agent'; readonly agent: WorkflowAgent; readonly flow: Flow }
  | { readonly type: 'invalid'; readonly problems: readonly AgentProblem[] };

/** Checks a definition. Never throws. */
export function checkWorkflow(given: Readonly<Record<string, unknown>>): CheckedWorkflow {
  const problems: AgentProblem[] = [];
  const { name, version, description, inputs, ...rest } = given;
  for (const key of Object.keys(given).filter((one) => !(KEYS as readonly string[]).includes(one))) {
    const message = `There is no such key.${didYouMean(key, KEYS)} The keys of a workflow are ${KEYS.join(', ')}.`;
    problems.push({ path: [key], message });
  }
  const checked = checkNamedAgent({ name, version, description, inputs });
  if (checked.type === 'invalid') problems.push(...checked.problems.map(aboutWorkflow));
  const named = checked.type === 'agent' ? { inputs: {}, ...checked.agent } : undefined;
  const names = named && inputNames(named);
  const definition = Object.fromEntries(
    (['steps', 'outputs', 'limit', 'undo_on'] as const).flatMap((key) => (rest[key] == null ? [] : [[key, rest[key]]])),
  ) as unknown as WorkflowDefinition;
  const compiled = compileWorkflow(named?.name ?? 'workflow', definition, names);
  if (compiled.type === 'invalid') problems.push(...compiled.problems);
  if (problems.length > 0 || compiled.type === 'invalid' || !named) return { type: 'invalid', problems };
  const { flow } = compiled;
  const called = [...targetsOf(flow, 'invoke_agent'), ...targetsOf(flow, 'sub_workflow')];
  const agent: WorkflowAgent = {
    ...named,
    tools: targetsOf(flow, 'run_tool'),
    ...(called.length > 0 && { dependencies: called.map((one) => ({ agent: one })) }),
    workflow: definition,
  };
  return { type: 'agent', agent, flow };
}

function aboutWorkflow({ path, message }: AgentProblem): AgentProblem {
  return { path, message: message.replace('what the agent is for', 'what the workflow is for') };
}

/** Undefined: a JSON Schema that says nothing of single inputs. */
function inputNames(agent: NamedAgent): readonly string[] | undefined {
  const { properties, additionalProperties = true } = inputSchema(agent) as Readonly<Record<string, unknown>>;
  if (agent.inputs?.['type'] === 'object' && additionalProperties !== false && !properties) return undefined;
  return Object.keys((properties ?? {}) as object);
}

/** `file`: its path, for messages. Without a `name` in it, the workflow has the name of the file. Never throws. */
export function parseWorkflowFile(source: string, file: string): ParsedAgentFile {
  const [base = ''] = /[^/\\]*$/.exec(file) ?? [];
  const text = source.replace(/^\uFEFF/, '').replaceAll('\r\n', '\n');
  const invalid = (problem: { readonly line?: number; readonly message: string }): ParsedAgentFile => ({
    type: 'invalid',
    problems: [{ file, ...problem }],
  });
  const problem = agentFormat(base) === 'json' ? jsonProblem(text) : undefined;
  if (problem) return invalid(problem);
  const yaml = yamlTable(text, { what: 'It', linesBefore: 0 });
  if (yaml.type === 'problem') return invalid(yaml);
  const given = plainOf(yaml.document);
  if (!given) return invalid({ line: 1, message: 'It is nested too deeply.' });
  const stem = base.slice(0, base.lastIndexOf('.'));
  const checked = checkWorkflow({ ...(isAgentName(stem) && { name: stem }), ...given });
  const lineOf = (path: AgentProblem['path']): number => lineAt(yaml.document, path, yaml.lineOf);
  if (checked.type === 'invalid') {
    const problems = checked.problems.map(({ path, message }) => ({
      file,
      line: lineOf(path),
      ...(path.length > 0 && { key: keyText(path) }),
      message,
    }));
    return { type: 'invalid', problems };
  }
  const { agent, flow } = checked;
  const steps = [...flow.steps.values()].map(({ path }) => path);
  const places = [['name'], ['outputs'], ...steps, ...steps.flatMap(keysOf)];
  const lines = new Map(places.map((path) => [keyText(path), lineOf(path)]));
  return { type: 'agent', agent, warnings: [], lines };
}

function keysOf(path: AgentProblem['path']): readonly AgentProblem['path'][] {
  return ['tool', 'agent', 'workflow', 'inputs'].map((key) => [...path, key]);
}
