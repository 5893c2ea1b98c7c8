import { ALLOWED, listed, type CallFacts, type Rule } from './rule.ts';
import type { Permission, PolicyRules } from './rules.ts';

/** All permissions that a call needs must be held: those that its tool declares, and those for what it touches. */
export function permissionsRule({ permissions }: PolicyRules): Rule {
  return {
    name: 'permissions',
    judge(facts) {
      const needed = neededPermissions(facts);
      if (needed.size === 0 || facts.clients) return undefined;
      const missing = permissions && [...needed].filter((name) => permissions[name as Permission] === false);
      if (!missing || missing.length === 0) return ALLOWED;
      const reason = `it needs the permission ${listed(missing)}, which is not granted`;
      return { type: 'deny', reason: `${reason}. Use tools that do not need it, or say what could not be done.` };
    },
    saw(facts) {
      const needed = [...neededPermissions(facts)];
      return needed.length === 0 ? 'it needs no permissions' : `it needs ${listed(needed)}`;
    },
  };
}

function neededPermissions({ call, paths, commands, urls }: CallFacts): ReadonlySet<string> {
  const needed = new Set<string>(call.permissions);
  const add = (permission: Permission): unknown => needed.add(permission);
  for (const { type } of paths) add(type === 'read' ? 'file_read' : 'file_write');
  for (const { facts } of commands) {
    add('shell');
    if (facts.programs.some(({ name }) => name === 'git' || name.endsWith('/git'))) add('git');
  }
  if (urls.length > 0) add('network');
  if (call.touches?.some(({ type }) => type === 'session')) add('session');
  return needed;
}
