import { describe, expect, test } from 'vitest';
import { builtInAsFunctionOutput } from './built-in-calls.ts';
import type { ShellOutput } from './wire.ts';

describe('the output of a shell', () => {
  const resultOf = (...output: readonly ShellOutput[]) =>
    builtInAsFunctionOutput({
      type: 'shell_call_output',
      id: 'sho_1',
      call_id: 'c',
      output,
      max_output_length: null,
      status: 'completed',
    });
  const ended = (exit_code: number): ShellOutput => ({
    stdout: '',
    stderr: '',
    outcome: { type: 'exit', exit_code },
  });

  test('is no error if all commands succeeded', () => {
    const result = resultOf(ended(0), ended(0));
    expect(result).toMatchObject({ output: '[exit code 0]\n\n[exit code 0]', is_error: false });
    expect(result).not.toHaveProperty('facts');
  });

  test('has the exit code of the first command that failed', () => {
    const result = resultOf(ended(0), ended(2), ended(3));
    expect(result).toMatchObject({ is_error: true, facts: { errorType: 'execution_failed', exitCode: 2 } });
  });

  test('says that a command timed out', () => {
    const late: ShellOutput = { stdout: 'a', stderr: '', outcome: { type: 'timeout' } };
    expect(resultOf(late)).toMatchObject({ output: 'a\n[timed out]', is_error: true, facts: { errorType: 'timeout' } });
  });
});
