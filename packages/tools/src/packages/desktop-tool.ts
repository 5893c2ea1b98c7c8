import { messageOf, registry } from '@treadle/core';
import { toLegacyResult } from '../legacy-result.ts';
import { local } from '../local/local.ts';
import { codingTools } from '../tool-sets.ts';
import { fromArguments } from './arguments.ts';

interface Output {
  write(text: string): unknown;
}

/**
 * Runs a built-in tool as a program: `dt-read --path notes.txt`. It acts in the current folder, with all rights of the user:
 * whoever starts it decides what it may do. Returns the exit code: 0; that of a command
 * that failed; 1 if the tool failed; 2 for wrong arguments.
 */
export async function runDesktopTool(
  name: string,
  words: readonly string[],
  { stdout, stderr }: { readonly stdout: Output; readonly stderr: Output },
): Promise<number> {
  const tools = registry();
  for (const one of codingTools(local(process.cwd(), { check: () => undefined }))) tools.register(one, 'built-in');
  const tool = tools.get(name);
  if (!tool) throw new Error(`There is no tool ${JSON.stringify(name)}.`);
  let input: unknown;
  try {
    input = fromArguments(words, tool.parameters);
  } catch (error) {
    stderr.write(`${messageOf(error)}\n`);
    return 2;
  }
  const settled = await tools.execute(name, input);
  if (settled.type !== 'result') throw new Error(`The tool ${name} returned no result.`);
  const result = toLegacyResult(settled, { tool: name });
  if (result.status === 'success') {
    stdout.write(withNewline(result.result));
    return 0;
  }
  stderr.write(withNewline(result.error));
  return settled.exitCode ?? (result.error_type === 'invalid_params' ? 2 : 1);
}

function withNewline(text: string): string {
  return text === '' || text.endsWith('\n') ? text : `${text}\n`;
}
