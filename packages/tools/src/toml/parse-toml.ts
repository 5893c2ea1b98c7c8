import { parse, TomlError } from 'smol-toml';

/** A text is not TOML. */
export class TomlProblem extends Error {
  readonly line: number;
  readonly column: number;

  constructor(message: string, { line, column }: { readonly line: number; readonly column: number }) {
    super(message);
    this.line = line;
    this.column = column;
  }
}

/** Throws a `TomlProblem`, whose message never contains a part of the text: that may be a secret. */
export function parseToml(text: string): Record<string, unknown> {
  try {
    return parse(text);
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    // The message of the library also contains the line.
    const what = error.message.split('\n')[0]!.replace('Invalid TOML document: ', '');
    throw new TomlProblem(`This is not TOML: ${what}`, error);
  }
}
