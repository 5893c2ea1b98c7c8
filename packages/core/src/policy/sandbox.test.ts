import { describe, expect, it } from 'vitest';
import type { Analysers } from './facts.ts';
import { policy, type ExplainedCall } from './policy.ts';
import type { Touch, Verdict } from './port.ts';
import type { PolicyRules } from './rules.ts';
import { REQUIRED_PROMISES } from './sandbox.ts';

/** `odd` cannot be analysed, `wipe` is destructive, and `read X` reads a file. */
const command: NonNullable<Analysers['command']> = (text) => {
  const [name = '', ...args] = text.split(' ');
  return {
    programs: [{ name, args }],
    touches: name === 'read' ? [{ type: 'read', path: args[0]! }] : [],
    urls: [],
    ...(name === 'odd' && { unclear: 'it is odd' }),
    ...(name === 'wipe' && { destructive: 'it removes everything' }),
  };
};

async function verdict(
  text: string,
  { rules = {}, ...call }: Partial<ExplainedCall> & { readonly rules?: PolicyRules } = {},
): Promise<Verdict['type']> {
  const made = policy({ autonomy: 2, ...rules }, { folder: '/work', analysers: { command } });
  const touches: readonly Touch[] = [{ type: 'command', command: text }];
  return (await made.explain({ name: 'bash', permissions: ['shell'], touches, sandbox: REQUIRED_PROMISES, ...call }))
    .verdict.type;
}

describe('a command in a sandbox', () => {
  it('is not asked about at level 2, also if it cannot be analysed', async () => {
    expect(await verdict('build')).toBe('allow');
    expect(await verdict('odd')).toBe('allow');
    expect(await verdict('odd', { rules: { autonomy: 3 } })).toBe('allow');
  });

  it('is asked about without a sandbox, and if a promise is missing that the rules require', async () => {
    for (const sandbox of [undefined, [], REQUIRED_PROMISES.slice(1), ['loopback']]) {
      const call = sandbox === undefined ? { sandbox: [] } : { sandbox };
      expect(await verdict('build', call)).toBe('ask');
      expect(await verdict('odd', { ...call, rules: { autonomy: 3 } })).toBe('ask');
    }
    expect(await verdict('build', { rules: { sandbox: { require: ['network', 'hosts'] } } })).toBe('ask');
    expect(await verdict('build', { sandbox: ['root'], rules: { sandbox: { require: ['root'] } } })).toBe('allow');
    expect(await verdict('build', { sandbox: [], rules: { sandbox: { require: [] } } })).toBe('ask');
  });

  it('is asked about at level 1, and the question says that it would run inside', async () => {
    const made = policy({}, { folder: '/work', analysers: { command } });
    const touches: readonly Touch[] = [{ type: 'command', command: 'build' }];
    const { verdict: found } = await made.explain({ name: 'bash', touches, sandbox: REQUIRED_PROMISES });
    expect(found).toMatchObject({ type: 'ask', reason: expect.stringContaining('run "build", inside a sandbox') });
    expect(await verdict('odd', { rules: { autonomy: 1 } })).toBe('ask');
  });

  it('is denied and asked about by entries, permissions and what is destructive', async () => {
    expect(await verdict('wipe')).toBe('deny');
    expect(await verdict('build', { rules: { commands: { deny: ['build'] } } })).toBe('deny');
    expect(await verdict('build', { rules: { commands: { ask: ['build'] } } })).toBe('ask');
    expect(await verdict('odd', { rules: { commands: { ask: ['odd'] } } })).toBe('ask');
    // An entry for every program is about those that are not known, too.
    expect(await verdict('odd', { rules: { commands: { deny: ['*'], allow: ['odd'] } } })).toBe('ask');
    expect(await verdict('build', { rules: { permissions: { shell: false } } })).toBe('deny');
    expect(await verdict('build', { rules: { tools: { bash: 'ask' } } })).toBe('ask');
    expect(await verdict('read /work/.env')).toBe('deny');
    expect(await verdict('build', { rules: { autonomy: 0 } })).toBe('deny');
  });

  it('covers nothing else that the tool touches', async () => {
    const touches: readonly Touch[] = [{ type: 'command', command: 'build' }, { type: 'unknown' }];
    expect(await verdict('build', { touches })).toBe('ask');
    expect(await verdict('build', { touches: [] })).toBe('allow');
    expect(await verdict('build', { touches: [{ type: 'write', path: '/work/x' }] })).toBe('ask');
  });
});
