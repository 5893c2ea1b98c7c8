import { didYouMean } from '@treadle/core/nearest';
import type { AgentProblem } from '@treadle/core/named-agents';
import { compileExpression, compileText, compileValue, namesIn, type Keys, type Template } from './expressions.ts';
import { allNeeds, blocksOf, ordered } from './graph.ts';
import {
  duration,
  isTable,
  retryOf,
  schemaOf,
  shown,
  sleepTemplates,
  text,
  timeOf,
  wholeNumber,
  type Path,
  type Retry,
  type Table,
} from './step-fields.ts';

/*
 * The steps of a workflow: checked, and compiled for the program that takes them.
 *
 * 1. A step needs the steps in `depends_on`, those that its expressions name, and the condition that lists it. So nothing is named
 *    that is not there when the step begins.
 * 2. A step of `on_error` or `undo` is taken only for the step that names it, and nothing else can need it.
 * 3. Ids are unique in the whole workflow, also inside of `parallel` and `map`.
 */

/** The part of a definition that is not that of every agent. Plain JSON, as in the file. */
export interface WorkflowDefinition {
  readonly steps: readonly unknown[];
  readonly outputs?: Readonly<Record<string, unknown>>;
  readonly limit?: number;
  readonly undo_on?: readonly string[];
  /** The run undoes the steps of this run, and does nothing else. */
  readonly undoes?: string;
}

export const ACTIONS = [
  'invoke_agent',
  'run_tool',
  'transform',
  'condition',
  'wait_approval',
  'ask',
  'parallel',
  'map',
  'sleep',
  'sub_workflow',
] as const;

export type Action = (typeof ACTIONS)[number];

export interface CompiledStep {
  readonly id: string;
  readonly action: Action;
  /** Where it is in the definition. */
  readonly path: Path;
  /** The steps of the same level that it needs. */
  readonly needs: readonly string[];
  /** What its expressions name, and those of its inner steps, of its handler and of its `undo`. */
  readonly names: ReadonlySet<string>;
  readonly when: Template | undefined;
  /** Seconds. */
  readonly timeout: number | undefined;
  readonly retry: Retry;
  /** `fail`, `continue`, or the step that is taken instead. */
  readonly onError: string;
  readonly undo: string | undefined;
  /** The condition that lists it, with the result for which it is taken. */
  readonly taken: { readonly condition: string; readonly if: boolean } | undefined;
  /** The templates of the step by their keys, such as `inputs` and `over`. */
  readonly templates: Readonly<Record<string, Template>>;
  /** The tool, agent or workflow that it names. */
  readonly target: string | undefined;
  /** The name of the entry of a map. */
  readonly as: string;
  readonly limit: number;
  readonly inner: Level | undefined;
  readonly schema: Readonly<Record<string, unknown>> | undefined;
}

/** The steps of a workflow, or inside of a step. */
export interface Level {
  readonly ids: readonly string[];
  readonly blocks: readonly (readonly (readonly string[])[])[];
}

export interface Flow {
  readonly name: string;
  readonly top: Level;
  readonly steps: ReadonlyMap<string, CompiledStep>;
  /** Undefined: the outputs of the steps that nothing needs. */
  readonly outputs: Template | undefined;
  readonly limit: number;
  readonly undoOn: readonly string[];
  readonly undoes: string | undefined;
}

export type CompiledWorkflow =
  | { readonly type: 'flow'; readonly flow: Flow }
  | { readonly type: 'invalid'; readonly problems: readonly AgentProblem[] };

const MAX_STEPS = 2_000;
const MAX_DEPTH = 5;
const COMMON = ['id', 'action', 'depends_on', 'inputs', 'when', 'timeout', 'retry', 'on_error', 'undo', 'description'];
/** The keys of each action besides those that all have. */
const KEYS: Readonly<Record<Action, readonly string[]>> = {
  invoke_agent: ['agent'],
  run_tool: ['tool'],
  transform: ['value'],
  condition: ['if', 'then', 'else'],
  wait_approval: ['message'],
  ask: ['question', 'choices', 'schema'],
  parallel: ['steps', 'limit'],
  map: ['over', 'as', 'steps', 'limit'],
  sleep: ['for', 'until'],
  sub_workflow: ['workflow'],
};
const REQUIRED: Readonly<Record<Action, readonly string[]>> = {
  invoke_agent: ['agent'],
  run_tool: ['tool'],
  transform: [],
  condition: ['if'],
  wait_approval: ['message'],
  ask: ['question'],
  parallel: ['steps'],
  map: ['over', 'steps'],
  sleep: [],
  sub_workflow: ['workflow'],
};
/** Keys whose text is an expression, also without braces. */
const EXPRESSIONS = new Set(['when', 'if', 'over', 'until']);
const TEMPLATES = ['inputs', 'when', 'value', 'if', 'message', 'question', 'over', 'for', 'until'];
const ID = /^[A-Za-z_][A-Za-z0-9_]{0,49}$/;
/** What CEL reads as something else. */
const RESERVED = new Set(['fail', 'continue', 'true', 'false', 'null', 'in']);

interface Checking {
  readonly problems: AgentProblem[];
  readonly steps: Map<string, CompiledStep>;
  readonly inputs: ReadonlySet<string> | undefined;
  readonly limit: number;
}

/** Checks the steps of a workflow, and compiles them. `inputs`: their names, if they are known. Never throws. */
export function compileWorkflow(
  name: string,
  definition: WorkflowDefinition,
  inputs: readonly string[] | undefined,
): CompiledWorkflow {
  const problems: AgentProblem[] = [];
  const limit = wholeNumber(definition.limit ?? 4, ['limit'], problems, 1, 100) ?? 4;
  const checking: Checking = { problems, steps: new Map(), inputs: inputs && new Set(inputs), limit };
  const undoOn = undoPolicy(definition.undo_on, problems);
  const top = level(definition.steps, { path: ['steps'], outer: new Set(), names: new Set(), depth: 0 }, checking);
  const outputs = definition.outputs && template(definition.outputs, ['outputs'], checking);
  if (outputs) checkNames(outputs, ['outputs'], { visible: new Set(top?.ids), names: new Set() }, checking);
  if (problems.length > 0 || !top) return { type: 'invalid', problems };
  const { undoes } = definition;
  return { type: 'flow', flow: { name, top, steps: checking.steps, outputs, limit, undoOn, undoes } };
}

const UNDO_ON = ['failed', 'cancelled'];

function undoPolicy(given: unknown, problems: AgentProblem[]): readonly string[] {
  if (given === undefined || given === null) return [];
  const all = Array.isArray(given) ? (given as unknown[]) : [given];
  if (all.every((one) => UNDO_ON.includes(one as string))) return all as string[];
  problems.push({ path: ['undo_on'], message: `It is ${shown(given)}. Use a list of ${UNDO_ON.join(' and ')}.` });
  return [];
}

interface Around {
  readonly path: Path;
  /** The steps around it that are done when its steps begin. */
  readonly outer: ReadonlySet<string>;
  /** Further variables, such as `item`. */
  readonly names: ReadonlySet<string>;
  readonly depth: number;
}

/** The steps of one level. Undefined if they cannot be taken; the problems are added. */
function level(given: unknown, around: Around, checking: Checking): Level | undefined {
  const { problems } = checking;
  const { path, depth } = around;
  if (!Array.isArray(given) || given.length === 0) {
    problems.push({ path, message: 'It has no steps. Give a list of steps, each with an id and an action.' });
    return undefined;
  }
  if (depth > MAX_DEPTH) {
    problems.push({ path, message: `Steps are more than ${MAX_DEPTH} levels inside each other.` });
    return undefined;
  }
  const drafts = (given as unknown[]).flatMap((one, index) => draft(one, [...path, index], checking) ?? []);
  const own = new Map(drafts.map((one) => [one.id, one]));
  for (const one of drafts) {
    if (checking.steps.has(one.id)) {
      problems.push({ path: [...one.path, 'id'], message: `Two steps have the id "${one.id}".` });
    }
    checking.steps.set(one.id, EMPTY);
    if (checking.steps.size > MAX_STEPS) {
      problems.push({ path, message: `The workflow has more than ${MAX_STEPS} steps.` });
      return undefined;
    }
  }
  const spare = spareSteps(drafts, own, problems);
  const taken = takenSteps(drafts, own, problems);
  const before = problems.length;
  const needs = new Map<string, readonly string[]>();
  for (const one of drafts) needs.set(one.id, directNeeds(one, { own, spare, taken, outer: around.outer }, checking));
  const graph = new Map([...needs].filter(([id]) => !spare.has(id)));
  const order = ordered(graph);
  if (order.type === 'cycle') {
    const at = own.get(order.ids[0]!)!;
    problems.push({ path: at.path, message: `The steps need each other in a cycle: ${order.ids.join(' → ')}.` });
  }
  if (problems.length > before || order.type === 'cycle') return undefined;
  const all = allNeeds(graph, order.ids);
  for (const [id, users] of spare) {
    const isDone = (one: string): boolean => users.every((user) => user === one || all.get(user)?.has(one));
    const late = needs.get(id)!.find((one) => !isDone(one));
    if (late === undefined) continue;
    const { path } = own.get(id)!;
    const message = `It is taken as soon as the step that names it needs it. Let "${users[0]}" depend on "${late}".`;
    problems.push({ path: [...path, 'depends_on'], message });
  }
  for (const id of [...order.ids, ...spare.keys()]) {
    const visible = new Set(around.outer);
    for (const user of spare.get(id) ?? [id]) {
      for (const one of all.get(user) ?? []) visible.add(one);
      if (spare.get(id) && own.get(user)!.given['undo'] === id) visible.add(user);
    }
    const names = new Set([...around.names, ...(spare.has(id) ? ['error'] : [])]);
    const step = compiled(
      own.get(id)!,
      { ...around, outer: visible, names },
      { needs: needs.get(id)!, taken },
      checking,
    );
    if (step) checking.steps.set(id, step);
  }
  // A step sees what its handler and its `undo` name.
  for (const id of order.ids) {
    const step = checking.steps.get(id)!;
    const others = [step.onError, step.undo].flatMap((one) => [...(checking.steps.get(one ?? '')?.names ?? [])]);
    if (others.length > 0) checking.steps.set(id, { ...step, names: new Set([...step.names, ...others]) });
  }
  return { ids: order.ids, blocks: blocksOf(graph) };
}

const EMPTY = {} as CompiledStep;

interface Draft {
  readonly id: string;
  readonly action: Action;
  readonly path: Path;
  readonly given: Table;
  readonly templates: Readonly<Record<string, Template>>;
}

function draft(given: unknown, path: Path, checking: Checking): Draft | undefined {
  const { problems } = checking;
  const before = problems.length;
  if (!isTable(given)) {
    problems.push({ path, message: 'It is not a step. Give a table with an id and an action.' });
    return undefined;
  }
  const { id, action: named } = given;
  if (typeof id !== 'string' || !ID.test(id) || RESERVED.has(id)) {
    const form =
      'Use letters, digits and underscores, up to 50, beginning with a letter, and not a word of expressions.';
    problems.push({ path: [...path, 'id'], message: `It is ${shown(id)}. ${form}` });
  }
  const action = typeof named === 'string' ? (named.replaceAll('-', '_') as Action) : undefined;
  if (!action || !ACTIONS.includes(action)) {
    const hint = action === undefined ? '' : didYouMean(action, ACTIONS);
    const message = `It is ${shown(named)}.${hint} Use one of ${ACTIONS.join(', ')}.`;
    problems.push({ path: [...path, 'action'], message });
    return undefined;
  }
  const known = [...COMMON, ...KEYS[action]];
  for (const key of Object.keys(given).filter((one) => !known.includes(one))) {
    const message = `A step of the action ${action} has no such key.${didYouMean(key, known)} Its keys are ${known.join(', ')}.`;
    problems.push({ path: [...path, key], message });
  }
  for (const key of REQUIRED[action].filter((one) => given[one] === undefined || given[one] === null)) {
    problems.push({ path: [...path, key], message: `It is missing. A step of the action ${action} needs it.` });
  }
  if (action === 'sleep' && (given['for'] === undefined) === (given['until'] === undefined)) {
    problems.push({ path, message: 'A step of the action sleep needs either "for" or "until".' });
  }
  const templates: Record<string, Template> = {};
  for (const key of TEMPLATES.filter((one) => known.includes(one) && given[one] !== undefined && given[one] !== null)) {
    const made = EXPRESSIONS.has(key)
      ? expression(given[key], key, path, checking)
      : template(given[key], [...path, key], checking);
    if (made) templates[key] = made;
  }
  if (given['inputs'] !== undefined && !isTable(given['inputs'])) {
    problems.push({ path: [...path, 'inputs'], message: `It is ${shown(given['inputs'])}. Use a table of values.` });
  }
  return problems.length > before ? undefined : { id: id as string, action, path, given, templates };
}

/** Steps that are taken only for other ones, with those. */
function spareSteps(
  drafts: readonly Draft[],
  own: ReadonlyMap<string, Draft>,
  problems: AgentProblem[],
): ReadonlyMap<string, readonly string[]> {
  const users = new Map<string, string[]>();
  for (const { id, path, given } of drafts) {
    for (const key of ['on_error', 'undo']) {
      const named = given[key];
      if (named === undefined || named === null || (key === 'on_error' && (named === 'fail' || named === 'continue'))) {
        continue;
      }
      const words = key === 'on_error' ? 'fail, continue, or the id of a step' : 'the id of a step';
      if (typeof named !== 'string' || !own.has(named) || named === id) {
        const hint = typeof named === 'string' ? didYouMean(named, [...own.keys()]) : '';
        problems.push({
          path: [...path, key],
          message: `It is ${shown(named)}.${hint} Use ${words} of the same list.`,
        });
        continue;
      }
      users.set(named, [...(users.get(named) ?? []), id]);
    }
  }
  for (const id of users.keys()) {
    const { given, path } = own.get(id)!;
    for (const key of ['on_error', 'undo']) {
      if (given[key] === undefined || given[key] === 'fail') continue;
      const message = 'A step that is named by "on_error" or "undo" cannot have it itself.';
      problems.push({ path: [...path, key], message });
    }
  }
  return users;
}

/** The steps that a condition lists. */
function takenSteps(
  drafts: readonly Draft[],
  own: ReadonlyMap<string, Draft>,
  problems: AgentProblem[],
): ReadonlyMap<string, NonNullable<CompiledStep['taken']>> {
  const taken = new Map<string, NonNullable<CompiledStep['taken']>>();
  for (const { id, action, path, given } of drafts) {
    if (action !== 'condition') continue;
    for (const key of ['then', 'else']) {
      const listed = given[key] === undefined || given[key] === null ? [] : given[key];
      const all = Array.isArray(listed) ? (listed as unknown[]) : [listed];
      for (const [index, one] of all.entries()) {
        const at = [...path, key, ...(Array.isArray(listed) ? [index] : [])];
        const name = String(one);
        if (name === id) problems.push({ path: at, message: 'A condition cannot list itself.' });
        else if (typeof one !== 'string' || !own.has(name)) {
          problems.push({ path: at, message: `There is no step ${shown(one)}.${didYouMean(name, [...own.keys()])}` });
        } else if (taken.has(name)) {
          problems.push({ path: at, message: `The step "${name}" is in two lists of conditions. Use "when" instead.` });
        } else taken.set(name, { condition: id, if: key === 'then' });
      }
    }
  }
  return taken;
}

interface Surroundings {
  readonly own: ReadonlyMap<string, Draft>;
  readonly spare: ReadonlyMap<string, readonly string[]>;
  readonly taken: ReadonlyMap<string, NonNullable<CompiledStep['taken']>>;
  readonly outer: ReadonlySet<string>;
}

/** The steps of the same level that a step needs. */
function directNeeds(
  { id, path, given, templates }: Draft,
  { own, spare, taken, outer }: Surroundings,
  { problems }: Checking,
): readonly string[] {
  const needs = new Set<string>();
  const listed = given['depends_on'] === undefined || given['depends_on'] === null ? [] : given['depends_on'];
  const all = Array.isArray(listed) ? (listed as unknown[]) : [listed];
  for (const [index, one] of all.entries()) {
    const at = [...path, 'depends_on', ...(Array.isArray(listed) ? [index] : [])];
    const name = String(one);
    if (outer.has(name)) continue;
    if (typeof one !== 'string' || !own.has(name)) {
      const message = `There is no step ${shown(one)}.${didYouMean(name, [...own.keys(), ...outer])}`;
      problems.push({ path: at, message: `${message} The steps are ${[...own.keys()].slice(0, 30).join(', ')}.` });
    } else if (spare.has(name)) problems.push({ path: at, message: only(name) });
    else needs.add(name);
  }
  // A handler and an `undo` have what the step has that names them.
  if (spare.has(id)) return [...needs];
  const named = [...Object.values(templates).flatMap(namesIn), ...innerNames(given['steps'])];
  for (const other of [given['on_error'], given['undo']]) {
    const handler = typeof other === 'string' ? own.get(other) : undefined;
    if (handler) named.push(...Object.values(handler.templates).flatMap(namesIn));
  }
  for (const [root, name] of named) {
    if (root === 'steps' && typeof name === 'string' && own.has(name) && name !== id && !spare.has(name)) {
      needs.add(name);
    }
  }
  const condition = taken.get(id)?.condition;
  if (condition !== undefined) needs.add(condition);
  return [...needs];
}

function only(name: string): string {
  return `The step "${name}" is taken only after an error or to undo a step, so nothing can depend on it.`;
}

/** What the steps inside of a step name. */
function innerNames(steps: unknown): readonly Keys[] {
  if (typeof steps === 'string') {
    const compiled = compileText(steps);
    if (compiled.type !== 'problem' && compiled.type !== 'value') return namesIn(compiled);
    const bare = /\bsteps\b/.test(steps) ? compileExpression(steps) : undefined;
    return bare?.type === 'expression' ? namesIn(bare.template) : [];
  }
  return typeof steps === 'object' && steps !== null ? Object.values(steps).flatMap(innerNames) : [];
}

function compiled(
  { id, action, path, given, templates }: Draft,
  around: Around,
  { needs, taken }: { readonly needs: readonly string[]; readonly taken: Surroundings['taken'] },
  checking: Checking,
): CompiledStep | undefined {
  const { problems } = checking;
  const names = new Set<string>();
  for (const [key, one] of Object.entries(templates)) {
    checkNames(one, [...path, key], { visible: around.outer, names: around.names }, checking);
    for (const [root, name] of namesIn(one)) if (root === 'steps') names.add(String(name));
  }
  const as = text(given['as'], [...path, 'as'], problems) ?? 'item';
  if (!ID.test(as) || RESERVED.has(as) || as === 'inputs' || as === 'steps') {
    problems.push({
      path: [...path, 'as'],
      message: `It is ${shown(as)}. Use a name of letters, digits and underscores.`,
    });
  }
  const further = action === 'map' ? [as, 'index'] : [];
  const inner =
    given['steps'] === undefined
      ? undefined
      : level(
          given['steps'],
          {
            ...around,
            path: [...path, 'steps'],
            names: new Set([...around.names, ...further]),
            depth: around.depth + 1,
          },
          checking,
        );
  for (const one of inner?.ids ?? []) for (const name of checking.steps.get(one)!.names) names.add(name);
  for (const one of inner?.ids ?? []) {
    const { undo, path: at } = checking.steps.get(one)!;
    if (undo === undefined) continue;
    problems.push({ path: [...at, 'undo'], message: 'Only steps that are not inside of another one can be undone.' });
  }
  const target = ['agent', 'tool', 'workflow'].map((key) => text(given[key], [...path, key], problems)).find(Boolean);
  const limit = given['limit'] ?? checking.limit;
  return {
    id,
    action,
    path,
    needs,
    names,
    when: templates['when'],
    timeout: duration(given['timeout'], [...path, 'timeout'], problems),
    retry: retryOf(given['retry'], [...path, 'retry'], problems),
    onError: (given['on_error'] as string | undefined) ?? 'fail',
    undo: (given['undo'] as string | undefined) ?? undefined,
    taken: taken.get(id),
    templates: sleepTemplates(templates, [...path, 'for'], problems),
    target,
    as,
    limit: wholeNumber(limit, [...path, 'limit'], problems, 1, 100) ?? 4,
    inner,
    schema: schemaOf(given, path, problems),
  };
}

/* Values with expressions */

function template(value: unknown, path: Path, { problems }: Checking): Template {
  return compileValue(value, path, (at, message) => void problems.push({ path: at, message }));
}

/** What a key may have besides one expression. */
const INSTEAD: Readonly<Record<string, { readonly isFit: (one: Template) => boolean; readonly use: string }>> = {
  over: {
    isFit: (one) => one.type === 'list' || (one.type === 'value' && Array.isArray(one.value)),
    use: 'a list, or one expression that returns a list, such as steps.find.output',
  },
  until: {
    isFit: (one) => one.type === 'text' || (one.type === 'value' && Number.isFinite(timeOf(one.value))),
    use: 'a time such as 2030-01-31T08:00:00Z, or one expression that returns one',
  },
};
const CONDITION = {
  isFit: (one: Template): boolean => one.type === 'value' && typeof one.value === 'boolean',
  use: 'an expression that is true or false, such as inputs.count > 3',
};
/** A time is no calculation. */
const DATE = /^\d{4}-\d\d-\d\d(?!\s*[-+*/])/;

function expression(value: unknown, key: string, within: Path, checking: Checking): Template | undefined {
  const path = [...within, key];
  const text = typeof value === 'string' ? value.trim() : undefined;
  const isValue = text === undefined || text.includes('${{') || (key === 'until' && DATE.test(text));
  if (!isValue) {
    const made = compileExpression(text);
    if (made.type === 'expression') return made.template;
    checking.problems.push({ path, message: made.message });
    return undefined;
  }
  const found = checking.problems.length;
  const made = template(text ?? value, path, checking);
  const { isFit, use } = INSTEAD[key] ?? CONDITION;
  if (made.type === 'path' || made.type === 'cel' || isFit(made)) return made;
  if (checking.problems.length === found)
    checking.problems.push({ path, message: `It is ${shown(value)}. Use ${use}.` });
  return undefined;
}

interface Scope {
  readonly visible: ReadonlySet<string>;
  readonly names: ReadonlySet<string>;
}

const OF_STEPS = ['output', 'status', 'error'];

/** Adds a problem for everything that a template names and nobody gives. */
function checkNames(
  given: Template,
  path: Path,
  { visible, names }: Scope,
  { problems, steps, inputs }: Checking,
): void {
  const wrong = (message: string): void => {
    if (!problems.some((one) => one.message === message && one.path.join() === path.join())) {
      problems.push({ path, message });
    }
  };
  for (const keys of namesIn(given)) {
    const [root, name, part] = keys.map(String);
    if (names.has(root!)) continue;
    if (root === 'inputs') {
      if (name === undefined || !inputs || inputs.has(name)) continue;
      const known = inputs.size === 0 ? 'It has none' : `Its inputs are ${[...inputs].join(', ')}`;
      wrong(`The workflow has no input "${name}".${didYouMean(name, [...inputs])} ${known}.`);
    } else if (root !== 'steps') {
      const known = ['inputs', 'steps', ...names];
      wrong(`There is no value "${root}".${didYouMean(root!, known)} Expressions see ${known.join(', ')}.`);
    } else if (name === undefined) wrong('Name a step, such as steps.fetch.output.');
    else if (!steps.has(name)) wrong(`There is no step "${name}".${didYouMean(name, [...visible])}`);
    else if (!visible.has(name))
      wrong(`The output of the step "${name}" is not there: nothing makes sure that it is done.`);
    else if (part === undefined || !OF_STEPS.includes(part)) {
      const hint = part === undefined ? '' : ` Did you mean steps.${name}.output.${part}?`;
      wrong(`A step has ${OF_STEPS.join(', ')}, and nothing else.${hint}`);
    }
  }
}
