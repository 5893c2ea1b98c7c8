import type { Touch } from '@treadle/core';
import { expect, test } from 'vitest';
import { shortRequestLines } from './ask-approval.ts';
import type { ApprovalRequest } from './drive-run.ts';

function shown(given: string | object, touches: readonly Touch[], more: Partial<ApprovalRequest> = {}): string {
  const text = typeof given === 'string' ? given : JSON.stringify(given);
  const call = { turn: 1, index: 0, id: 'c', name: 'tool', arguments: text } as ApprovalRequest['call'];
  const request = { type: 'approval', effect: 'e', digest: 'd', expiresAt: Infinity, call, touches, ...more } as const;
  return shortRequestLines(request as ApprovalRequest, 0).join('\n');
}

const COMMAND: Touch = { type: 'command', command: 'ls' };

test('what the touches show exactly is not shown again', () => {
  expect(shown({ command: 'ls' }, [COMMAND])).toBe('tool wants to run\n  runs ls');
  expect(shown({ path: 'a' }, [{ type: 'write', path: 'a', lines: 2 }])).toBe(
    'tool wants to run\n  writes a (2 lines)',
  );
});

test.each<[string, string | object, readonly Touch[]]>([
  ['another argument', { command: 'ls', background: true }, [COMMAND]],
  ['another value', { command: 'ls -a' }, [COMMAND]],
  ['another spelling', { path: './a' }, [{ type: 'read', path: 'a' }]],
  ['an argument of another name', { target: 'ls' }, [COMMAND]],
  ['another kind of touch', { command: 'ls' }, [{ type: 'read', path: 'ls' }]],
  ['a call without touches', { command: 'ls' }, []],
  ['what is not an object', '["ls"]', [COMMAND]],
  ['what is not JSON', '{"command":"ls"', [COMMAND]],
])('%s is shown', (_, given, touches) => {
  const rest = typeof given === 'object' && 'background' in given ? { background: true } : given;
  const text = typeof rest === 'string' ? rest : JSON.stringify(rest);
  expect(shown(given, touches)).toContain(`tool wants to run with ${text}`);
});

test('the reason is shown unless it says only what the call touches', () => {
  const reason = 'at level 1 it is asked about, because it would run "ls"';
  expect(shown({}, [COMMAND], { rule: 'autonomy', reason })).not.toContain('level 1');
  expect(shown({}, [], { rule: 'autonomy', reason })).toContain('level 1');
  expect(shown({}, [COMMAND], { rule: 'commands', reason: 'it cannot be analysed' })).toContain(
    'it cannot be analysed',
  );
});
