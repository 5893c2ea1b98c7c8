import { messageOf, TreadleError } from '../errors.ts';
import { sha256 } from '../machine/sha256.ts';
import type { AgentRules, Memory } from '../machine/rules.ts';
import { canonicalJson, isPlain } from '../plain.ts';
import { submitName, type AnyAgent } from './tools.ts';

/** What is pinned in the journal. Throws if the state to begin with cannot be made, or is no plain JSON. */
export function agentRules(agent: AnyAgent, input: unknown): AgentRules {
  const { name, tools, validation, state } = agent;
  const { maxAttempts, textOnly = 'fail', earlySubmit = 'fail' } = validation;
  const submit = submitName(agent);
  const digest = digestOf(input);
  return {
    name,
    ...(digest !== undefined && { input: digest }),
    output: tools.output.name,
    ...(submit !== undefined && { submit }),
    maxAttempts,
    textOnly,
    earlySubmit,
    ...(state && { memory: memoryOf(agent, input) }),
  };
}

function memoryOf({ name, state = {} }: AnyAgent, input: unknown): Memory {
  const { run, attempt } = state;
  try {
    const memory = {
      run: typeof run === 'function' ? (run as (input: unknown) => unknown)(input) : run,
      attempt: typeof attempt === 'function' ? (attempt as () => unknown)() : attempt,
    };
    if (!isPlain(memory)) throw new Error('it holds more than JSON can say, such as a Date, a Set or a class');
    return JSON.parse(JSON.stringify(memory)) as Memory;
  } catch (cause) {
    const message = `The state of agent "${name}" cannot be made, or is not plain JSON: ${messageOf(cause)}`;
    throw new TreadleError('invalid-options', message, { cause });
  }
}

/** Absent if the input is not plain: then nobody can tell whether another one is the same. */
function digestOf(input: unknown): string | undefined {
  const json = input === undefined ? 'undefined' : canonicalJson(input);
  return json && sha256(json);
}
