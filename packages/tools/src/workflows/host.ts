import { createHash } from 'node:crypto';
import { stableJson, TreadleError, type Clock, type Tool } from '@treadle/core';
import {
  inputSchema,
  type AgentHost,
  type AgentProblem,
  type NamedAgent,
  type WorkflowHost,
} from '@treadle/core/named-agents';
import { schemaCheck, type SchemaCheck } from '@treadle/core/json-schema';
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
  // Its steps were checked when the run began that it undoes.
  if (flow.undoes !== undefined) return [];
  const known = new Map([...flow.steps].map(([id, step]) => [id, fieldsOf(step, host)] as const));
  const steps = [...flow.steps.values()];
  return [
    ...endlessProblems(agent, flow, host),
    ...steps.flatMap((step) => targetProblems(step, host)),
    ...steps.flatMap((step) =>
      Object.entries(step.templates).flatMap(([key, one]) => fieldProblems(one, [...step.path, key], known)),
    ),
    ...(flow.outputs ? fieldProblems(flow.outputs, ['outputs'], known) : []),
  ];
}

/** What is wrong with the tool, agent or workflow of a step, and with what it gets. */
/** A workflow that calls itself whatever its inputs are, directly or through others, never ends. */
function endlessProblems({ name }: NamedAgent, flow: Flow, host: AgentHost): readonly AgentProblem[] {
  for (const { path, action, target } of alwaysCalled(flow)) {
    const chain = chainTo(name, target!, host, new Set());
    if (!chain) continue;
    const key = action === 'invoke_agent' ? 'agent' : 'workflow';
    const names = [name, ...chain].join(' → ');
    return [
      {
        path: [...path, key],
        message: `The workflow calls itself without an end: ${names}. Give a step on the way a condition.`,
      },
    ];
  }
  return [];
}

/** The workflows from one to the one of this name, which all of them always call. Undefined: there is no such way. */
function chainTo(name: string, from: string, host: AgentHost, seen: Set<string>): readonly string[] | undefined {
  if (from === name) return [from];
  const agent = host.agent?.(from);
  if (seen.has(from) || !isWorkflow(agent)) return undefined;
  seen.add(from);
  for (const { target } of alwaysCalled(flowOf(agent))) {
    const chain = chainTo(name, target!, host, seen);
    if (chain) return [from, ...chain];
  }
  return undefined;
}

/** The steps that call agents and workflows, and are never skipped. */
function alwaysCalled({ top, steps }: Flow): readonly CompiledStep[] {
  const always = new Set<string>();
  const callers = (ids: readonly string[]): readonly CompiledStep[] =>
    ids.flatMap((id) => {
      const one = steps.get(id)!;
      // A step is skipped if all that it needs was.
      if (one.when || one.taken || (one.needs.length > 0 && !one.needs.some((need) => always.has(need)))) return [];
      always.add(id);
      if (one.action === 'parallel') return callers(one.inner!.ids);
      return one.action === 'invoke_agent' || one.action === 'sub_workflow' ? [one] : [];
    });
  return callers(top.ids);
}

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
    ...valueProblems(inputs, schema).map((problem) => {
      const [key = ''] = problem.split(/[.:]/);
      return { path: [...path, 'inputs', key], message: `${what} does not take this input: ${problem}.` };
    }),
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

/** What is wrong with the inputs that are no expressions. Patterns are not tried, because they may take long. */
function valueProblems(inputs: Template | undefined, schema: Readonly<Record<string, unknown>>): readonly string[] {
  const values = inputs?.type === 'value' ? inputs.value : Object.fromEntries(knownEntries(inputs));
  try {
    return knownCheck(schema)(values, () => true);
  } catch {
    return [];
  }
}

/** Schemas are prepared once. */
const checks = new WeakMap<object, SchemaCheck>();

/** The check of some of the inputs. */
function knownCheck(schema: Readonly<Record<string, unknown>>): SchemaCheck {
  const known = checks.get(schema);
  if (known) return known;
  const { properties = {}, $defs = {}, definitions = {} } = schema;
  const made = schemaCheck({ type: 'object', properties, $defs, definitions });
  checks.set(schema, made);
  return made;
}

function knownEntries(inputs: Template | undefined): readonly (readonly [string, unknown])[] {
  if (inputs?.type !== 'table') return [];
  return inputs.entries.flatMap(([key, one]) => (one.type === 'value' ? [[key, one.value] as const] : []));
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
