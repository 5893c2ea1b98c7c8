import type { JsonSchema } from '@treadle/core';
import { cleanSchema } from '../mcp/describe.ts';

/*
 * The parameters of a tool in a file, which can be written in three forms: as a JSON Schema in a table, as the text of one,
 * or as a table of parameters, `path = "string"` or `path = { type = "string", required = true }`.
 */

/** Names that can be given as `--name`. */
export const PARAMETER_NAME: RegExp = /^[A-Za-z0-9][\w.-]{0,63}$/;

type Table = Readonly<Record<string, unknown>>;

/** The schema that is meant. Throws an `Error` with what is wrong, after the path of the parameters. */
export function schemaFrom(given: string | Table): JsonSchema {
  const written = typeof given === 'string' ? parsedJson(given) : given;
  const { properties, required, ...rest } = isSchema(written) ? written : { properties: written };
  if (rest['type'] !== undefined && rest['type'] !== 'object') throw new Error(`.type must be "object"`);
  if (!isTable(properties ?? {})) throw new Error('.properties must be a table');
  const list = required ?? [];
  if (!Array.isArray(list)) throw new Error('.required must be a list of names');
  const needed = new Set<unknown>(list);
  const entries = Object.entries((properties ?? {}) as Table).map(([name, one]): [string, Table] => {
    const at = isSchema(written) ? `.properties.${name}` : `.${name}`;
    if (!PARAMETER_NAME.test(name)) throw new Error(`${at} must have a name of letters, digits, "_", "-" and "."`);
    const { required: isNeeded, ...schema } = propertyFrom(one, at);
    if (isNeeded === true) needed.add(name);
    else if (isNeeded !== undefined && isNeeded !== false && !Array.isArray(isNeeded)) {
      throw new Error(`${at}.required must be true or false`);
    }
    return [name, Array.isArray(isNeeded) ? { ...schema, required: isNeeded } : schema];
  });
  const unknown = [...needed].find((name) => !entries.some(([known]) => known === name));
  if (unknown !== undefined) throw new Error(`.required names ${JSON.stringify(unknown)}, which is not a parameter`);
  const schema = {
    additionalProperties: false,
    ...rest,
    type: 'object',
    properties: Object.fromEntries(entries),
    ...(needed.size > 0 && { required: [...needed] }),
  };
  try {
    return cleanSchema(JSON.parse(JSON.stringify(schema)) as object, 'input');
  } catch (error) {
    throw new Error(` cannot be used: ${(error as Error).message}`, { cause: error });
  }
}

/** A parameter may itself be named "type" or "properties", but then it is a type or the table of one. */
function isSchema({ type, properties }: Table): boolean {
  return (
    type === 'object' || (isTable(properties) && Object.values(properties).every(isTable) && !('type' in properties))
  );
}

function propertyFrom(value: unknown, at: string): Table {
  if (typeof value === 'string') return { type: value };
  if (isTable(value)) return value;
  throw new Error(`${at} must be a type such as "string", or a table with one`);
}

function parsedJson(text: string): Table {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error(' must be a table, or the JSON text of a schema');
  }
  if (!isTable(value) || !isSchema(value)) throw new Error(' must be the schema of an object');
  return value;
}

function isTable(value: unknown): value is Table {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Date);
}
