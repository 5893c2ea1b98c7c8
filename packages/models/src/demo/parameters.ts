import type { ToolSpec } from '@treadle/core';

export interface Parameter {
  readonly name: string;
  readonly type: string;
  readonly required: boolean;
  readonly choices: readonly string[];
  readonly description: string;
}

export type Arguments = Record<string, unknown>;

/** What a tool takes, as far as its JSON Schema tells plainly. */
export function parametersOf({ parameters }: ToolSpec): Parameter[] {
  const properties = isRecord(parameters['properties']) ? parameters['properties'] : {};
  const required = Array.isArray(parameters['required']) ? parameters['required'] : [];
  return Object.entries(properties).map(([name, schema]) => {
    const { type, enum: choices, description } = isRecord(schema) ? schema : {};
    const given = Array.isArray(choices) ? choices.filter((choice) => typeof choice === 'string') : [];
    const known = Array.isArray(type) ? type.find((one) => one !== 'null') : type;
    return {
      name,
      type: typeof known === 'string' ? known : 'string',
      required: required.includes(name),
      choices: given,
      description: typeof description === 'string' ? description : '',
    };
  });
}

/** Arguments out of a text; none if it holds none. */
export function argumentsIn(text: string): Arguments {
  try {
    const value: unknown = JSON.parse(text);
    return isRecord(value) ? value : {};
  } catch {
    return {};
  }
}

/** The names of the parameters that a call lacks. */
export function missing(parameters: readonly Parameter[], given: Arguments): string[] {
  return parameters.filter(({ name, required }) => required && !(name in given)).map(({ name }) => name);
}

/** Something of the right type for a parameter that nobody spoke of; for calls that must be made. */
export function placeholder({ type, choices }: Parameter, text: string): unknown {
  if (choices.length > 0) return choices[0];
  switch (type) {
    case 'number':
    case 'integer':
      return 1;
    case 'boolean':
      return false;
    case 'array':
      return [];
    case 'object':
      return {};
    default:
      return text;
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
