import { createHash } from 'node:crypto';
import { stableJson, TreadleError, type Clock, type Tool } from '@treadle/core';
import {
  inputSchema,
  type AgentHost,
  type AgentProblem,
  type NamedAgent,
  type WorkflowHost,
} from '@treadle/core/named-agents';
import { didYouMean } from '@treadle/core/nearest';
import { programModel } from '@treadle/core/program';
import { compileWorkflow, type CompiledStep, type Flow } from './definition.ts';
import { namesIn, type Template } from './expressions.ts';
import { isWorkflow } from './parse-workflow.ts';
import { workflowProgram } from './program.ts';
import { MAX_BRANCHES, workflowTools, type WorkflowToolsOptions } from './tools.ts';

export interface WorkflowHostOptions extends Pick<WorkflowToolsOptions, 'stopRun'> {
  readonly clock?: Clock;
}

/** Runs agents that are workflows. */
export function workflowHost({ clock, stopRun }: WorkflowHostOptions = {}): WorkflowHost {
  return {
    parts(agent, tools) {
      const flow = flowOf(agent);
      const version = digestOf(agent);
      const own = { flow, version, tools, ...(clock && { clock }), ...(stopRun && { stopRun }) };
      const model = programModel(workflowProgram(flow, agent.workflow));
      return { model, tools: workflowTools(own), maxParallel: MAX_BRANCHES };
    },
    lacking: lackingOf,
  };
}

const flows = new WeakMap<object, Flow>();

/** The steps of a workflow. Throws `invalid-agent` if they are not valid. */
export function flowOf(agent: NamedAgent): Flow {
  if (!isWorkflow(agent)) throw new TreadleError('invalid-agent', `The agent "${agent.name}" is not a workflow.`);
  const known = flows.get(agent.workflow);
  if (known) return known;
  const compiled = compileWorkflow(agent.name, agent.workflow, undefined);
  if (compiled.type === 'invalid') {
    const problems = compiled.problems.map(({ path, message }) => `${path.join('.')}: ${message}`);
    throw new TreadleError('invalid-agent', `The workflow "${agent.name}" is not valid. ${problems.join(' ')}`);
  }
  flows.set(agent.workflow, compiled.flow);
  return compiled.flow;
}

/** Branches record it instead of the whole definition. */
function digestOf({ workflow }: NamedAgent): string {
  return createHash('sha256').update(stableJson(workflow)).digest('hex').slice(0, 32);
}

/* What a workflow names */

function lackingOf(agent: NamedAgent, host: AgentHost): readonly AgentProblem[] {
  let flow: Flow;
  try {
    flow = flowOf(agent);
  } catch (error) {
    return [{ path: [], message: (error as Error).message }];
  }
  const known = new Map([...flow.steps].map(([id, step]) => [id, fieldsOf(step, host)] as const));
  const steps = [...flow.steps.values()];
  return [
    ...steps.flatMap((step) => targetProblems(step, host)),
    ...steps.flatMap((step) =>
      Object.entries(step.templates).flatMap(([key, one]) => fieldProblems(one, [...step.path, key], known)),
    ),
    ...(flow.outputs ? fieldProblems(flow.outputs, ['outputs'], known) : []),
  ];
}

/** What is wrong with the tool, agent or workflow of a step, and with what it gets. */
function targetProblems(step: CompiledStep, host: AgentHost): readonly AgentProblem[] {
  const { action, target = '', path } = step;
  if (action === 'run_tool') {
    const found = host.tools.find(({ name }) => name === target);
    if (found) return inputProblems(step, `The tool "${target}"`, found.parameters);
    const names = host.tools.map(({ name }) => name);
    return [{ path: [...path, 'tool'], message: lacks('tool', target, names) }];
  }
  if (action !== 'invoke_agent' && action !== 'sub_workflow') return [];
  const kind = action === 'invoke_agent' ? 'agent' : 'workflow';
  const found = host.agent?.(target);
  if (found && (action === 'invoke_agent' || isWorkflow(found))) {
    return inputProblems(step, `The ${kind} "${target}"`, inputSchema(found));
  }
  const why = found ? `"${target}" is an agent, and not a workflow. Use invoke_agent.` : lacks(kind, target, []);
  return [{ path: [...path, kind], message: why }];
}

function lacks(kind: string, name: string, names: readonly string[]): string {
  const known = names.length === 0 ? '' : ` The ${kind}s are ${names.slice(0, 30).join(', ')}.`;
  return `There is no ${kind} "${name}".${didYouMean(name, names)}${known}`;
}

function inputProblems(
  { templates: { inputs }, path }: CompiledStep,
  what: string,
  schema: Readonly<Record<string, unknown>>,
): readonly AgentProblem[] {
  const {
    properties = {},
    required = [],
    additionalProperties,
  } = schema as {
    readonly properties?: object;
    readonly required?: readonly string[];
    readonly additionalProperties?: unknown;
  };
  const given = inputs === undefined ? [] : keysIn(inputs);
  const names = Object.keys(properties);
  const isOpen = names.length === 0 ? additionalProperties !== false : Boolean(additionalProperties);
  const unknown = isOpen ? [] : given.filter((one) => !names.includes(one));
  const missing = required.filter((one) => !given.includes(one));
  const known = names.length === 0 ? 'It takes none' : `It takes ${names.join(', ')}`;
  return [
    ...unknown.map((one) => ({
      path: [...path, 'inputs', one],
      message: `${what} has no input "${one}".${didYouMean(one, names)} ${known}.`,
    })),
    ...missing.map((one) => ({
      path: [...path, 'inputs'],
      message: `${what} needs the input "${one}", which is missing.`,
    })),
  ];
}

function keysIn(template: Template): readonly string[] {
  if (template.type === 'table') return template.entries.map(([key]) => key);
  return template.type === 'value' ? Object.keys(template.value as object) : [];
}

/** The fields of the output of a step; undefined if they are not known. */
function fieldsOf(step: CompiledStep, host: AgentHost): readonly string[] | undefined {
  const { action, target = '', templates, inner } = step;
  switch (action) {
    case 'transform':
      return templates['value'] ? undefined : keysIn(templates['inputs'] ?? { type: 'value', value: {} });
    case 'parallel':
      return inner?.ids;
    case 'wait_approval':
      return ['approved'];
    case 'run_tool':
      return propertiesOf(host.tools.find(({ name }) => name === target)?.output);
    case 'invoke_agent':
    case 'sub_workflow': {
      const found = host.agent?.(target);
      if (isWorkflow(found)) return found.workflow.outputs && Object.keys(found.workflow.outputs);
      return found?.outputs && (propertiesOf(found.outputs) ?? Object.keys(found.outputs));
    }
    default:
      return undefined;
  }
}

function propertiesOf(schema: Tool['output'] | object | undefined): readonly string[] | undefined {
  const { type, properties } = (schema ?? {}) as { readonly type?: unknown; readonly properties?: object };
  return type === 'object' && properties ? Object.keys(properties) : undefined;
}

function fieldProblems(
  template: Template,
  path: AgentProblem['path'],
  known: ReadonlyMap<string, readonly string[] | undefined>,
): readonly AgentProblem[] {
  return namesIn(template).flatMap(([root, id, part, field]) => {
    if (root !== 'steps' || part !== 'output' || typeof field !== 'string') return [];
    const fields = known.get(String(id));
    if (!fields || fields.includes(field)) return [];
    const message = `The output of the step "${id}" has no field "${field}".${didYouMean(field, fields)}`;
    return [{ path, message: `${message} It has ${fields.join(', ') || 'none'}.` }];
  });
}
