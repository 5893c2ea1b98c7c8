import { messageOf } from '../errors.ts';
import type { CallCheck } from '../machine/events.ts';
import { parseArguments } from './arguments.ts';
import type { Tool } from './tool.ts';
import { validate, type Validated } from './validate.ts';

/** What is known of a call before anything runs; `input` is what the tool will get. */
export interface Checked {
  readonly check: CallCheck;
  readonly input?: unknown;
}

const FINE: CallCheck = {};

/** Reads and validates the arguments of one call. `cut`: the reply it stands in was cut off. */
export function checkCall(tool: Tool, text: string, cut: boolean): Checked | Promise<Checked> {
  if (tool.asWritten && !cut) return { check: FINE };
  const parsed = parseArguments(text, cut);
  if (parsed.type === 'problem') return { check: { problem: parsed.problem } };
  const verdict = validate(tool.input, parsed.value);
  const read = (validated: Validated): Checked => checkedOf(tool, validated, parsed.repaired);
  return verdict instanceof Promise ? verdict.then(read) : read(verdict);
}

function checkedOf(tool: Tool, validated: Validated, repaired: string | undefined): Checked {
  const mended = repaired !== undefined && { arguments: repaired };
  if (validated.type === 'invalid') return { check: { problem: problemOf(tool, validated.problems), ...mended } };
  const input = validated.value;
  if (repaired === undefined && !tool.resources) return { check: FINE, input };
  try {
    const resources = tool.resources?.(input);
    if (resources && !isTexts(resources)) {
      void Promise.resolve(resources).catch(() => {});
      throw new Error('"resources" must return a list of texts');
    }
    return {
      check: { ...mended, ...(resources && { resources }) },
      input,
    };
  } catch (thrown) {
    return { check: { problem: `What it needs for itself could not be told: ${messageOf(thrown)}` } };
  }
}

function isTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((one) => typeof one === 'string');
}

function problemOf({ parameters }: Tool, problems: readonly string[]): string {
  const known = Object.keys(parameters['properties'] ?? {});
  const required = isTexts(parameters['required']) ? parameters['required'] : [];
  const optional = known.filter((name) => !required.includes(name));
  const signature = [
    required.length > 0 && `Required: ${required.join(', ')}.`,
    optional.length > 0 && `Optional: ${optional.join(', ')}.`,
  ].filter(Boolean);
  return ['Its arguments are not valid:', `${problems.join('; ')}.`, ...signature].join(' ');
}
