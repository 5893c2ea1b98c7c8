/* A form made from a JSON Schema, such as that of an agent's inputs. What is neither a text, a number nor a choice is written as JSON. */

export interface FormField {
  readonly name: string;
  readonly kind: 'text' | 'number' | 'integer' | 'boolean' | 'json';
  readonly description: string;
  readonly isRequired: boolean;
  /** The default value, as text. Empty: none. */
  readonly initial: string;
  readonly choices?: readonly string[];
}

interface Property {
  readonly type?: unknown;
  readonly description?: unknown;
  readonly default?: unknown;
  readonly enum?: readonly unknown[];
}

export function fieldsOf(schema: object): readonly FormField[] {
  const { properties = {}, required = [] } = schema as {
    readonly properties?: Readonly<Record<string, Property>>;
    readonly required?: readonly string[];
  };
  return Object.entries(properties).map(([name, property]): FormField => {
    const { description, default: standard, enum: values } = property;
    const kind = kindOf(property);
    const areTexts = kind === 'text' && values?.every((value) => typeof value === 'string');
    return {
      name,
      kind,
      description: typeof description === 'string' ? description : '',
      isRequired: required.includes(name),
      initial: standard === undefined ? '' : typeof standard === 'string' ? standard : JSON.stringify(standard),
      ...(values && areTexts && { choices: values as readonly string[] }),
    };
  });
}

function kindOf({ type }: Property): FormField['kind'] {
  if (type === 'string') return 'text';
  return type === 'number' || type === 'integer' || type === 'boolean' ? type : 'json';
}

export type ReadInputs =
  | { readonly inputs: Readonly<Record<string, unknown>>; readonly problem?: undefined }
  | { readonly problem: string };

/** The inputs of a form. Empty fields that are not required are left out. The server checks the rest. */
export function inputsFrom(fields: readonly FormField[], form: Pick<FormData, 'get'>): ReadInputs {
  const inputs: Record<string, unknown> = {};
  for (const { name, kind, isRequired } of fields) {
    const text = form.get(name);
    if (kind === 'boolean') inputs[name] = text !== null;
    else if (typeof text !== 'string' || (text === '' && !isRequired)) continue;
    else if (kind === 'number' || kind === 'integer') inputs[name] = Number(text);
    else if (kind === 'json') {
      try {
        inputs[name] = JSON.parse(text) as unknown;
      } catch {
        return {
          problem: `${name} is not valid JSON. Write a list as ["a", "b"], and an object as {"name": "value"}.`,
        };
      }
    } else inputs[name] = text;
  }
  return { inputs };
}
