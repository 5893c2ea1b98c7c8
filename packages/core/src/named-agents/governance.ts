import type { Autonomy, Narrowing } from '../machine/narrowing.ts';
import type { PolicyRules } from '../policy/rules.ts';
import { skillNarrowing } from '../skills/skill-narrowing.ts';
import { AUTONOMY_LEVELS } from './check.ts';
import type { AutonomyLevel, Governance, NamedAgent } from './named-agent.ts';

/*
 * What the definition of an agent allows at most, as narrowings of its runs. They are judged beside the policy of the host, and the
 * strictest verdict applies. They are recorded with the run, belong to it (`fixed`), and also apply to its child runs.
 */

export function agentSource(name: string): string {
  return `agent:${name}`;
}

export function autonomyOf(level: AutonomyLevel): Autonomy {
  return AUTONOMY_LEVELS.indexOf(level) as Autonomy;
}

export function agentNarrowings(agent: NamedAgent): readonly Narrowing[] {
  const { name, governance = {}, autonomy_level: level } = agent;
  const { working_dir: folder } = governance;
  const entries = toolEntriesOf(agent);
  const byEntries = skillNarrowing({
    ...NO_SKILL,
    name,
    ...(entries && { allowedTools: entries }),
    ...(governance.approvals && { approvals: governance.approvals }),
  });
  const rules = governanceRules(governance);
  const scoped = scopedTools(governance);
  const narrowings: readonly Narrowing[] = [
    // The run has no other tools, and those that call agents are not among the entries.
    withoutTools(byEntries),
    {
      ...(level && { autonomy: autonomyOf(level) }),
      ...(rules && { rules }),
      ...(scoped && { tools: scoped }),
    },
    folder === undefined || folder === '.' ? {} : confinedTo(folder),
  ];
  return narrowings
    .filter((one) => Object.keys(one).some((key) => key !== 'source'))
    .map((one) => ({ ...one, source: agentSource(name), fixed: true }));
}

function withoutTools({ tools: _, ...rest }: Narrowing): Narrowing {
  return rest;
}

const NO_SKILL = {
  description: '',
  text: '',
  folder: '',
  files: [],
  invocation: 'both',
  execution: 'inline',
  dependencies: [],
  status: 'active',
} as const;

/** Entries for tools of the host; undefined if it may use all of them. */
export function toolEntriesOf({ tools = [] }: NamedAgent): readonly string[] | undefined {
  return tools.includes('*') ? undefined : tools.filter((entry) => !/^(agent|handoff):/.test(entry));
}

/** The calls that its scopes cover; undefined if they cover all. */
function scopedTools({ scopes }: Governance): readonly string[] | undefined {
  if (!scopes || scopes.includes('tools:execute')) return undefined;
  return scopes.map((scope) => scope.slice('tools:execute:'.length));
}

function governanceRules({ commands, paths, domains, working_dir: folder = '.' }: Governance): PolicyRules | undefined {
  const rules: PolicyRules = {
    ...(commands && { commands: onlyAllowed(commands) }),
    ...(paths && { paths: pathRules(paths, folder) }),
    ...(domains && { domains: onlyAllowed(domains) }),
  };
  return Object.keys(rules).length === 0 ? undefined : rules;
}

type Lists = NonNullable<Governance['commands']>;

/** With a list of what is allowed, everything else is denied: `*` is the least specific entry. A list with `*` has it all. */
function onlyAllowed(lists: Lists): Lists {
  return lists.allow && !lists.allow.includes('*') ? { ...lists, deny: ['*', ...(lists.deny ?? [])] } : lists;
}

/** Globs start at the folder of the agent. A denial that begins with `**` applies everywhere. */
function pathRules(
  { read, write, deny }: NonNullable<Governance['paths']>,
  folder: string,
): NonNullable<PolicyRules['paths']> {
  const placed = (glob: string): string => (folder === '.' || /^[/~]/.test(glob) ? glob : `${folder}/${glob}`);
  const only = [...(read ? (['read'] as const) : []), ...(write ? (['write'] as const) : [])];
  return {
    ...(read && { read: read.map(placed) }),
    ...(write && { write: write.map(placed) }),
    ...(deny && { deny: deny.map((glob) => (glob.startsWith('**') ? glob : placed(glob))) }),
    ...(only.length > 0 && { only }),
  };
}

/** No path outside of the folder, and tools that act in a folder get this one unless a call names another. */
function confinedTo(folder: string): Narrowing {
  const inside = [`${folder}/**`];
  return {
    rules: { paths: { read: inside, write: inside, only: ['read', 'write'] } },
    defaults: { bash: { workdir: folder }, glob: { path: folder }, grep: { path: folder } },
  };
}
