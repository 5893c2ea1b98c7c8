import type { CompiledStep, Flow, Level } from './definition.ts';
import { evaluate } from './evaluate.ts';
import { shown } from './step-fields.ts';
import { MissingValue, namesIn, valueAt, type Template } from './expressions.ts';

/*
 * What a workflow would do, without doing it. Values that depend on what a tool, an agent or a person returns are not known: they
 * stay expressions.
 */

export interface PlannedStep {
  readonly id: string;
  readonly action: string;
  /** The tool, agent or workflow. */
  readonly calls?: string;
  readonly depends_on: readonly string[];
  /** `if`: a condition decides, which is not known. */
  readonly taken: 'yes' | 'no' | 'if' | 'on_error' | 'undo';
  /** As far as they are known. */
  readonly values: Readonly<Record<string, unknown>>;
  readonly steps?: readonly PlannedStep[];
}

/** The outputs of steps that are known without doing anything, and the steps that are not taken. */
interface Known {
  readonly flow: Flow;
  readonly inputs: unknown;
  readonly outputs: Map<string, unknown>;
  readonly skipped: Set<string>;
}

/** The steps in the order in which they could be taken. Rejects if an expression over the inputs fails. */
export async function dryRun(flow: Flow, inputs: unknown): Promise<readonly PlannedStep[]> {
  const known: Known = { flow, inputs, outputs: new Map(), skipped: new Set() };
  const planned = await planLevel(known, flow.top);
  const spare = [...flow.steps.values()].filter(({ id, path }) => path.length === 2 && !flow.top.ids.includes(id));
  const undone = new Set(Array.from(flow.steps.values(), ({ undo }) => undo));
  const others = await Promise.all(
    spare.map(
      async (step) => ({ ...(await planStep(known, step)), taken: undone.has(step.id) ? 'undo' : 'on_error' }) as const,
    ),
  );
  return [...planned, ...others];
}

async function planLevel(known: Known, { ids }: Level): Promise<readonly PlannedStep[]> {
  const planned: PlannedStep[] = [];
  for (const id of ids) planned.push(await planStep(known, known.flow.steps.get(id)!));
  return planned;
}

async function planStep(known: Known, step: CompiledStep): Promise<PlannedStep> {
  const { id, action, templates, needs, inner, target } = step;
  const taken = await isTaken(known, step);
  if (taken === 'no') known.skipped.add(id);
  const values: Record<string, unknown> = {};
  for (const [key, one] of Object.entries(templates))
    if (key !== 'when') values[key] = (await resolved(known, one)).value;
  if (taken === 'yes' && (action === 'transform' || action === 'condition')) {
    const from = action === 'condition' ? templates['if']! : (templates['value'] ?? templates['inputs']);
    const result = from ? await resolved(known, from) : { isKnown: true, value: {} };
    if (result.isKnown) known.outputs.set(id, result.value);
  }
  const steps = inner && action === 'parallel' ? await planLevel(known, inner) : undefined;
  const each =
    inner && action === 'map' ? await planLevel({ ...known, outputs: new Map(known.outputs) }, inner) : undefined;
  return {
    id,
    action,
    ...(target !== undefined && { calls: target }),
    depends_on: needs,
    taken,
    values,
    ...((steps ?? each) && { steps: steps ?? each! }),
  };
}

async function isTaken(known: Known, { id, needs, taken, when }: CompiledStep): Promise<PlannedStep['taken']> {
  const { outputs, skipped } = known;
  if (needs.length > 0 && needs.every((id) => skipped.has(id))) return 'no';
  if (taken) {
    if (skipped.has(taken.condition)) return 'no';
    if (!outputs.has(taken.condition)) return 'if';
    if (outputs.get(taken.condition) !== taken.if) return 'no';
  }
  if (!when) return 'yes';
  const decided = await resolved(known, when);
  if (!decided.isKnown) return 'if';
  if (typeof decided.value === 'boolean') return decided.value ? 'yes' : 'no';
  throw new Error(`"when" of the step "${id}" is ${shown(decided.value)}. It has to be true or false.`);
}

interface Resolved {
  readonly isKnown: boolean;
  readonly value: unknown;
}

async function resolved(known: Known, template: Template): Promise<Resolved> {
  switch (template.type) {
    case 'value':
      return { isKnown: true, value: template.value };
    case 'path':
    case 'cel':
      return isKnownHere(known, template)
        ? { isKnown: true, value: await evaluated(known, template) }
        : { isKnown: false, value: `\${{ ${template.text} }}` };
    case 'text': {
      const parts = await Promise.all(template.parts.map((one) => resolved(known, one)));
      const text = parts
        .map(({ value }) => (typeof value === 'string' ? value : JSON.stringify(value ?? null)))
        .join('');
      return { isKnown: parts.every(({ isKnown }) => isKnown), value: text };
    }
    case 'list': {
      const items = await Promise.all(template.items.map((one) => resolved(known, one)));
      return { isKnown: items.every(({ isKnown }) => isKnown), value: items.map(({ value }) => value) };
    }
    case 'table': {
      const entries = await Promise.all(
        template.entries.map(async ([key, one]) => [key, await resolved(known, one)] as const),
      );
      const value = Object.fromEntries(entries.map(([key, one]) => [key, one.value]));
      return { isKnown: entries.every(([, { isKnown }]) => isKnown), value };
    }
    default:
      return template satisfies never;
  }
}

function isKnownHere({ outputs, skipped }: Known, template: Template): boolean {
  return namesIn(template).every(([root, id, part]) => {
    if (root === 'inputs') return true;
    if (root !== 'steps' || part !== 'output') return false;
    return outputs.has(String(id)) || skipped.has(String(id));
  });
}

async function evaluated(known: Known, template: Extract<Template, { type: 'path' | 'cel' }>): Promise<unknown> {
  const steps = Object.fromEntries([
    ...Array.from(known.skipped, (id) => [id, { status: 'skipped', output: null }] as const),
    ...Array.from(known.outputs, ([id, output]) => [id, { status: 'done', output }] as const),
  ]);
  const values = { inputs: known.inputs, steps };
  const { text } = template;
  if (template.type === 'path') {
    try {
      return valueAt(values, template.keys, text);
    } catch (error) {
      // An input that is not given.
      if (error instanceof MissingValue) return `\${{ ${text} }}`;
      throw error;
    }
  }
  const { e } = await evaluate({ e: text }, values);
  return e;
}
