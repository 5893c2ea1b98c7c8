import { ALLOWED, type Opinion, type Rule } from './rule.ts';
import type { PolicyRules } from './rules.ts';

/**
 * Entries for tools. The most specific one decides: `tool:operation`, `tool:*` for calls that have an operation, `tool`,
 * `*`. An `allow` also satisfies an ask of the autonomy rule.
 */
export function toolEntriesRule({ tools = {} }: PolicyRules): Rule {
  const entryFor = (name: string, operation: string | undefined, clients: boolean): string | undefined => {
    const specific = operation === undefined ? [] : [`${name}:${operation}`, `${name}:*`];
    // What the client does is its own business, unless an entry names the tool.
    const entries = clients ? [...specific, name] : [...specific, name, '*'];
    return entries.find((entry) => Object.hasOwn(tools, entry));
  };
  return {
    name: 'tools',
    judge({ call: { name, operation }, clients }): Opinion | undefined {
      const entry = entryFor(name, operation, clients);
      if (entry === undefined) return undefined;
      const verdict = tools[entry]!;
      if (verdict === 'allow') return ALLOWED;
      if (verdict === 'ask') return { type: 'ask', reason: `the entry "${entry}" asks about it` };
      return { type: 'deny', reason: `the entry "${entry}" denies it. ${otherOperations(name, entry)}` };
    },
    saw({ call: { name, operation }, clients }) {
      const entry = entryFor(name, operation, clients);
      if (entry === undefined) return `no entry for "${name}${operation === undefined ? '' : `:${operation}`}"`;
      return `the entry "${entry}" is ${tools[entry]}`;
    },
  };

  function otherOperations(name: string, denied: string): string {
    const prefix = `${name}:`;
    const open = Object.keys(tools).filter((entry) => entry.startsWith(prefix) && tools[entry] !== 'deny');
    if (open.length > 0) return `Of this tool, ${open.map((entry) => `"${entry}"`).join(', ')} may be called.`;
    return denied.startsWith(prefix) ? 'Use another operation.' : 'Use another tool.';
  }
}
