import { TreadleError } from '../errors.ts';
import { didYouMean } from '../nearest.ts';
import { checkNamedAgent } from './check.ts';
import { DEFAULT_AGENT, type AgentRegistry, type NamedAgent } from './named-agent.ts';

/** A registry of agents that are given in code. Throws `invalid-agent` for a definition that is not valid, and for two of a name. */
export function agentRegistry(
  definitions: readonly unknown[],
  { default: byDefault }: { readonly default?: string } = {},
): AgentRegistry {
  const agents = new Map<string, NamedAgent>();
  for (const definition of definitions) {
    const checked = checkNamedAgent(definition);
    if (checked.type === 'invalid') {
      const problems = checked.problems.map(({ path, message }) => `${path.join('.') || 'the definition'}: ${message}`);
      throw new TreadleError('invalid-agent', `An agent is not valid. ${problems.join(' ')}`);
    }
    const { agent } = checked;
    if (agents.has(agent.name)) throw new TreadleError('invalid-agent', `There are two agents named "${agent.name}".`);
    agents.set(agent.name, agent);
  }
  return {
    list: () => [...agents.values()],
    get: (name) => agents.get(name === DEFAULT_AGENT ? (byDefault ?? name) : name),
    onChange: () => () => {},
  };
}

/** The agent of this name. Throws `unknown-agent`, with the nearest name. */
export function agentNamed(registry: AgentRegistry, name: string): NamedAgent {
  const agent = registry.get(name);
  if (agent) return agent;
  if (name === DEFAULT_AGENT) throw new TreadleError('unknown-agent', 'There is no default agent. Name one.');
  const names = registry.list().map((one) => one.name);
  const known = names.length === 0 ? 'There are no agents' : `The agents are ${names.slice(0, 20).join(', ')}`;
  const given = JSON.stringify(name.slice(0, 100));
  throw new TreadleError('unknown-agent', `There is no agent ${given}.${didYouMean(name, names)} ${known}.`);
}
