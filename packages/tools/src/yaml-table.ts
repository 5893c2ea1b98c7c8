import { isMap, LineCounter, parseDocument, visit, type Document, type ParsedNode, type YAMLMap } from 'yaml';

/** A file in YAML whose top level is a table of keys. */
export interface YamlTable {
  readonly type: 'table';
  readonly keys: YAMLMap<ParsedNode, ParsedNode | null>;
  readonly document: Document.Parsed;
  /** The line of an offset in the text, from 1 on. */
  readonly lineOf: (offset: number) => number;
}

export interface YamlProblem {
  readonly type: 'problem';
  readonly line: number;
  readonly message: string;
}

/**
 * Parses YAML. Deep nesting can exhaust the stack, and aliases could make a small file large. `what` names the text in problems,
 * `linesBefore` are those before it in its file.
 */
export function yamlTable(
  text: string,
  { what, linesBefore }: { readonly what: string; readonly linesBefore: number },
): YamlTable | YamlProblem {
  const lines = new LineCounter();
  const lineOf = (offset: number): number => lines.linePos(offset).line + linesBefore;
  try {
    const document = parseDocument(text, { lineCounter: lines, uniqueKeys: true });
    const [broken] = document.errors;
    if (broken) {
      const [message = ''] = broken.message.split(/ at line |\n/);
      const why = /call stack/.test(message) ? 'is nested too deeply' : `is not valid YAML: ${message}`;
      return { type: 'problem', line: lineOf(broken.pos[0]), message: `${what} ${why}.` };
    }
    const aliases: number[] = [];
    visit(document, { Alias: (_, { range }) => void aliases.push(range?.[0] ?? 0) });
    if (aliases[0] !== undefined) {
      return { type: 'problem', line: lineOf(aliases[0]), message: 'It has an alias. Write the value itself.' };
    }
    const { contents } = document;
    if (isMap(contents)) return { type: 'table', keys: contents as YamlTable['keys'], document, lineOf };
    return { type: 'problem', line: 1, message: `${what} has no keys.` };
  } catch {
    return { type: 'problem', line: 1, message: `${what} is nested too deeply.` };
  }
}

/** The front matter of a Markdown file, and the text below it. Undefined if it has none. */
export function frontMatter(text: string): { readonly front: string; readonly body: string } | undefined {
  const [whole, front] = /^---[ \t]*\n(.*?)^---[ \t]*(?:\n|$)/ms.exec(text) ?? [];
  if (whole === undefined || front === undefined || !text.startsWith(whole)) return undefined;
  return { front, body: text.slice(whole.length) };
}
