import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import type { FormName } from '../provider/script.ts';

const MODULES = path.resolve(import.meta.dirname, '../../node_modules');

/** The request types of the official clients. That of Google is the body of the request; see `WIRE`. */
const TYPES: Readonly<Record<FormName, readonly [module: string, name: string]>> = {
  'openai-chat': ['openai/resources/chat/completions/completions.js', 'ChatCompletionCreateParams'],
  'openai-responses': ['openai/resources/responses/responses.js', 'ResponseCreateParams'],
  anthropic: ['@anthropic-ai/sdk/resources/messages/messages.js', 'MessageCreateParams'],
  google: ['@google/genai/dist/genai.d.ts', 'Content, GenerationConfig, Tool, ToolConfig'],
  ollama: ['ollama/dist/browser.js', 'ChatRequest'],
};

/**
 * Google's client has types for the parts of a body, but none for the body. Its enums are strings on the wire. In one line,
 * so that the lines of the bodies can be counted.
 */
const WIRE = [
  'type Wire<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: Wire<T[K]> } : T;',
  'type GoogleFields = { contents: Content[]; systemInstruction?: Content; tools?: Tool[]; toolConfig?: ToolConfig;',
  'generationConfig?: GenerationConfig }; type GoogleBody = Wire<GoogleFields>;',
].join(' ');

export interface NamedBody {
  readonly name: string;
  readonly form: FormName;
  readonly body: unknown;
}

/** The compiler errors for bodies that do not have the types of the official clients, each with the name of the body. */
export async function typeProblems(bodies: readonly NamedBody[]): Promise<readonly string[]> {
  const folder = await mkdtemp(path.join(tmpdir(), 'treadle-types-'));
  try {
    const imports = Object.values(TYPES).map(
      ([module, name]) => `import type { ${name} } from ${JSON.stringify(`${MODULES}/${module}`)};`,
    );
    const values = bodies.map(
      ({ name, form, body }, index) =>
        `/* ${name} */ export const b${index}: ${form === 'google' ? 'GoogleBody' : TYPES[form][1]} = ${typedPart(form, body)};`,
    );
    await writeFile(path.join(folder, 'bodies.ts'), [...imports, WIRE, ...values].join('\n'));
    const compilerOptions = {
      strict: true,
      noEmit: true,
      module: 'nodenext',
      target: 'esnext',
      skipLibCheck: true,
      types: [],
    };
    await writeFile(path.join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['bodies.ts'] }));
    await writeFile(path.join(folder, 'package.json'), '{"type":"module"}');
    await promisify(execFile)(process.execPath, [`${MODULES}/typescript/bin/tsc`, '-p', folder]);
    return [];
  } catch (thrown) {
    const { stdout } = thrown as { readonly stdout?: string };
    if (stdout === undefined || stdout === '') throw thrown;
    return [
      ...new Set(
        stdout
          .trim()
          .split('\n')
          .map((line) => withBodyName(line, bodies)),
      ),
    ];
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** `…/bodies.ts(9,20): error …` is about the third body: there are six lines before the first. */
function withBodyName(line: string, bodies: readonly NamedBody[]): string {
  const [, number, problem] = /\((\d+),\d+\): (.*)/.exec(line) ?? [];
  return number === undefined ? line.trim() : `${bodies[Number(number) - 7]!.name}: ${problem}`;
}

/** The JSON of a body without fields that the provider accepts but the types of its client lack. */
function typedPart(form: FormName, body: unknown): string {
  return JSON.stringify(body, function (this: Readonly<Record<string, unknown>>, key: string, value: unknown) {
    return isUntyped(form, key, this) ? undefined : value;
  });
}

function isUntyped(form: FormName, key: string, holder: Readonly<Record<string, unknown>>): boolean {
  switch (form) {
    case 'openai-chat':
      // OpenAI once required it, and other hosts still do.
      return key === 'name' && holder['role'] === 'tool';
    case 'ollama':
      return ['truncate', 'shift', 'tool_call_id'].includes(key) || (key === 'id' && 'function' in holder);
    default:
      return false;
  }
}
