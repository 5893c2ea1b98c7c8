import { ALLOWED, listed, type Rule } from './rule.ts';

const EXECUTE = 'tools:execute';

/** The principal of the run needs `tools:execute`, or `tools:execute:<tool>`. Without a principal there are no scopes. */
export function scopesRule(): Rule {
  return {
    name: 'scopes',
    judge({ call: { name }, clients }, { principal }) {
      if (!principal || clients) return undefined;
      const { subject, scopes } = principal;
      if (scopes.includes(EXECUTE) || scopes.includes(`${EXECUTE}:${name}`)) return ALLOWED;
      const own = scopes
        .filter((scope) => scope.startsWith(`${EXECUTE}:`))
        .map((scope) => scope.slice(EXECUTE.length + 1));
      const tools = own.length === 0 ? 'It may call no tool.' : `It may call ${listed(own)}.`;
      return {
        type: 'deny',
        reason: `"${subject}" has neither the scope "${EXECUTE}" nor "${EXECUTE}:${name}". ${tools}`,
      };
    },
    saw: (_, { principal }) =>
      principal ? `"${principal.subject}" has the scopes ${listed(principal.scopes) || 'none'}` : 'no principal',
  };
}
