/** The start of a surrogate that `JSON.stringify` has escaped. It escapes only lone ones. */
const LONE_SURROGATE = String.raw`\ud`;

/** JSON that the parser of a provider accepts: a lone surrogate, which is not valid text, is replaced. */
export function jsonOf(value: unknown): string {
  const json = JSON.stringify(value);
  return json.includes(LONE_SURROGATE) ? wellFormed(json) : json;
}

type ReplaceText = (text: string) => string;

let replaceText: ReplaceText | undefined;

/**
 * The same for a value whose texts can be long, such as the texts and files of a message. They are replaced within
 * `withTextsReplaced`, so the result must neither be kept nor become part of another text.
 */
export function sliceableJson(value: unknown): string {
  const json = replaceText === undefined ? JSON.stringify(value) : withoutTexts(value, replaceText);
  return json.includes(LONE_SURROGATE) ? wellFormed(json) : json;
}

/** Calls `write`, and replaces each text in the JSON that `sliceableJson` returns to it. */
export function withTextsReplaced(replace: ReplaceText, write: () => string): string {
  replaceText = replace;
  try {
    return write();
  } finally {
    replaceText = undefined;
  }
}

function withoutTexts(value: unknown, replace: ReplaceText): string {
  return JSON.stringify(value, (_, field: unknown) => (typeof field === 'string' ? replace(field) : field));
}

function wellFormed(json: string): string {
  // A backslash of the text is escaped as two.
  return json.replace(/\\\\|\\ud[89a-f][0-9a-f]{2}/g, (found) => (found === '\\\\' ? found : String.raw`\ufffd`));
}

/** The value of a JSON text; undefined if the text is not JSON. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** True for arrays too: a field that is read from one is undefined. */
export function isRecord<T extends object>(value: T | null | undefined): value is T;
export function isRecord(value: unknown): value is Record<string, unknown>;
export function isRecord(value: unknown): boolean {
  return typeof value === 'object' && value !== null;
}

export function isJsonObject(value: unknown): value is Record<string, unknown> {
  return isRecord(value) && !Array.isArray(value);
}

/** The fields of an object; none if the value is not an object. */
export function fieldsOf<Shape extends object>(value: unknown): Partial<Shape> {
  return isRecord(value) ? (value as Partial<Shape>) : {};
}

export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

export function textIn(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
