import { ALLOWED, listed, type Rule } from './rule.ts';

/** Only the tools that the run may call. `step` enforces it too; here it takes part in explanations. */
export function allowedRule(): Rule {
  return {
    name: 'allowed',
    judge({ call: { name } }, { allowed }) {
      if (!allowed) return undefined;
      if (allowed.includes(name)) return ALLOWED;
      const tools = allowed.length === 0 ? 'It may call no tool.' : `It may call ${listed(allowed)}.`;
      return { type: 'deny', reason: `the run may not call "${name}". ${tools}` };
    },
    saw: (_, { allowed }) =>
      allowed ? `the run may call ${listed(allowed) || 'no tool'}` : 'the run may call all its tools',
  };
}
