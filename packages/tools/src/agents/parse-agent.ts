import { checkNamedAgent, isAgentName, type AgentProblem, type NamedAgent } from '@treadle/core/named-agents';
import { isMap, isNode, isScalar, stringify, type Document } from 'yaml';
import { frontMatter, yamlTable } from '../yaml-table.ts';

/*
 * Files with the definition of an agent: YAML, JSON, or Markdown with a front matter in YAML, whose text is the instructions. What is
 * wrong is reported with its line and key. A file has no way to include another one.
 */

/** What is wrong with a file, or has no effect in it. */
export interface AgentFileProblem {
  readonly file: string;
  /** From 1 on. */
  readonly line?: number;
  /** Such as `constraints.max_retries` or `tools[1]`. */
  readonly key?: string;
  readonly message: string;
}

export type ParsedAgentFile =
  | {
      readonly type: 'agent';
      readonly agent: NamedAgent;
      readonly warnings: readonly AgentFileProblem[];
      /** The lines of its name and of what it names, by keys such as `tools[1]`. */
      readonly lines: ReadonlyMap<string, number>;
    }
  | { readonly type: 'invalid'; readonly problems: readonly AgentFileProblem[] };

/** The format of a file by its name; undefined if it is not the file of an agent. */
export function agentFormat(name: string): AgentFormat | undefined {
  if (name.startsWith('.') || /^readme\./i.test(name)) return undefined;
  const [, extension] = /\.(yaml|yml|json|md)$/.exec(name) ?? [];
  return extension === 'yml' ? 'yaml' : (extension as AgentFormat | undefined);
}

export type AgentFormat = 'yaml' | 'json' | 'md';

/** `file`: its path, for messages. Without a `name` in it, the agent has the name of the file. Never throws. */
export function parseAgentFile(source: string, file: string): ParsedAgentFile {
  const [base = ''] = /[^/\\]*$/.exec(file) ?? [];
  const format = agentFormat(base);
  const text = source.replace(/^\uFEFF/, '').replaceAll('\r\n', '\n');
  const invalid = (...problems: readonly Omit<AgentFileProblem, 'file'>[]): ParsedAgentFile => ({
    type: 'invalid',
    problems: problems.map((problem) => ({ file, ...problem })),
  });
  if (format === undefined) return invalid({ message: 'It is not a file of an agent. Use .yaml, .json or .md.' });
  const parts = format === 'md' ? frontMatter(text) : { front: text, body: '' };
  if (!parts) {
    return invalid({ line: 1, message: 'It has no front matter. Begin it with a line "---", keys, and a line "---".' });
  }
  const problem = format === 'json' ? jsonProblem(text) : undefined;
  if (problem !== undefined) return invalid(problem);
  const what = format === 'md' ? 'Its front matter' : 'It';
  // JSON is YAML, whose parser knows the lines.
  const yaml = yamlTable(parts.front, { what, linesBefore: format === 'md' ? 1 : 0 });
  if (yaml.type === 'problem') return invalid({ line: yaml.line, message: yaml.message });
  const { document, lineOf } = yaml;
  const given = plainOf(document);
  if (!given) return invalid({ line: 1, message: `${what} is nested too deeply.` });
  const body = parts.body.trim();
  if (body !== '' && given['instructions'] !== undefined) {
    const line = lineAt(document, ['instructions'], lineOf);
    return invalid({ line, key: 'instructions', message: 'The text of the file has the instructions. Omit the key.' });
  }
  const stem = base.slice(0, base.lastIndexOf('.'));
  const checked = checkNamedAgent({
    ...(isAgentName(stem) && { name: stem }),
    ...given,
    ...(body !== '' && { instructions: body }),
  });
  const placed = ({ path, message }: AgentProblem): AgentFileProblem => ({
    file,
    line: lineAt(document, path, lineOf),
    ...(path.length > 0 && { key: keyText(path) }),
    message,
  });
  if (checked.type === 'invalid') return { type: 'invalid', problems: checked.problems.map(placed) };
  const { agent } = checked;
  const lines = new Map(namingPaths(agent).map((path) => [keyText(path), lineAt(document, path, lineOf)]));
  return { type: 'agent', agent, warnings: checked.warnings.map(placed), lines };
}

/** Where a definition names itself and parts of the host. */
function namingPaths(agent: NamedAgent): readonly AgentProblem['path'][] {
  const entries = (['tools', 'skills', 'dependencies'] as const).flatMap((key) =>
    (agent[key] ?? []).map((_, index) => [key, index] as const),
  );
  return [['name'], ['model'], ...entries];
}

export function jsonProblem(text: string): Omit<AgentFileProblem, 'file'> | undefined {
  try {
    JSON.parse(text);
    return undefined;
  } catch (error) {
    const { message } = error as Error;
    const [, position] = /at position (\d+)/.exec(message) ?? [];
    const line = position === undefined ? undefined : text.slice(0, Number(position)).split('\n').length;
    const [why = ''] = message.split(/ at position | in JSON|, \.\.\./);
    return { ...(line !== undefined && { line }), message: `It is not valid JSON: ${why.slice(0, 200)}.` };
  }
}

export function plainOf(document: Document): Record<string, unknown> | undefined {
  try {
    return document.toJS() as Record<string, unknown>;
  } catch {
    return undefined;
  }
}

/** The line of the key or of the entry at a path, or of the nearest one around it. */
export function lineAt(document: Document, path: AgentProblem['path'], lineOf: (offset: number) => number): number {
  for (let length = path.length; length > 0; length--) {
    const around = document.getIn(path.slice(0, length - 1), true);
    const last = path[length - 1];
    // The value of a key may begin on a later line.
    const pair = isMap(around) ? around.items.find(({ key }) => isScalar(key) && key.value === last) : undefined;
    const node = pair?.key ?? document.getIn(path.slice(0, length), true);
    if (isNode(node) && node.range) return lineOf(node.range[0]);
  }
  return 1;
}

/** A path as people write it. */
export function keyText(path: AgentProblem['path']): string {
  return path.reduce<string>((text, part) => {
    if (typeof part === 'number') return `${text}[${part}]`;
    return text === '' ? part : `${text}.${part}`;
  }, '');
}

/** The text of a file with a definition. */
export function agentFileText({ instructions, ...agent }: NamedAgent, format: AgentFormat): string {
  const whole = { ...agent, ...(instructions !== undefined && { instructions }) };
  switch (format) {
    case 'json':
      return `${JSON.stringify(whole, null, 2)}\n`;
    case 'yaml':
      return stringify(whole);
    case 'md':
      return `---\n${stringify(agent)}---\n\n${instructions === undefined ? '' : `${instructions}\n`}`;
    default:
      return format satisfies never;
  }
}
