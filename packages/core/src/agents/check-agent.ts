import { textAsModel } from '../driver/open.ts';
import { TreadleError } from '../errors.ts';
import type { AgentDefinition, AnyAgent, HelperTool } from './define.ts';
import { agentTools, submitName } from './tools.ts';
import { checkOptions, checkSettings, type KnownOptions, type OptionNames } from '../known-options.ts';

type Definition = AgentDefinition<unknown, unknown>;

const AGENT_OPTIONS: KnownOptions = {
  names: {
    name: 'string',
    description: 'string',
    model: '',
    prompts: '',
    tools: '',
    validation: '',
    state: 'object',
    projectFinalState: 'function',
    observability: 'object',
    settings: 'object',
    limits: 'object',
    narrow: '',
    skills: 'array',
    toolChoice: '',
    parallel: 'boolean',
    maxParallel: 'number',
    maxResultChars: 'number',
    toolTimeoutMs: 'number',
  } satisfies OptionNames<Definition>,
  elsewhere: {
    instructions: 'prompts.system',
    system: 'prompts.system',
    prompt: 'prompts.user',
    output: 'tools.output',
    outputSchema: 'validation.outputSchema',
    outputType: 'validation.outputSchema',
    maxAttempts: 'validation.maxAttempts',
  },
  code: 'invalid-agent',
};

type Part = 'prompts' | 'tools' | 'validation' | 'state' | 'observability';

const PARTS: { readonly [Name in Part]: OptionNames<NonNullable<Definition[Name]>> } = {
  prompts: { system: '', user: '', error: 'function' },
  tools: { helpers: '', output: '' },
  validation: {
    outputSchema: '',
    customValidators: '',
    maxAttempts: 'number',
    maxIterationsPerAttempt: 'number',
    textOnly: '',
    earlySubmit: '',
  },
  state: { run: '', attempt: '' },
  observability: { trackTokens: 'boolean', trackLatency: 'boolean' },
};

/** Throws `invalid-agent` for a definition that could never work. */
export function checkAgent(definition: AgentDefinition<never, never>): void {
  const { name, model, prompts, tools, validation } = definition;
  if (typeof name !== 'string' || name === '')
    throw new TreadleError('invalid-agent', 'The agent has no name. Give one.');
  const reject = (what: string): never => {
    throw new TreadleError('invalid-agent', `Agent "${name}": ${what}.`);
  };
  checkOptions(`Agent "${name}"`, definition, AGENT_OPTIONS);
  checkSettings(`Agent "${name}"`, definition.settings, 'invalid-agent');
  if (typeof model?.reply !== 'function') {
    reject(textAsModel(model) ?? 'it has no model. Give one, such as openaiChat({ model })');
  }
  if (prompts?.user === null || !['string', 'object', 'function'].includes(typeof prompts?.user))
    reject('it has no prompts.user. Give a text, content blocks or a function');
  if (!['function', 'undefined'].includes(typeof prompts.error)) reject('its prompts.error is not a function');
  if (Array.isArray(tools)) reject('its tools are an array. Give { helpers: [tools], output: { name, description } }');
  const { output, helpers = [] } = tools ?? {};
  if (typeof output?.name !== 'string')
    reject('it has no tools.output. Give the tool that the model calls with its answer');
  const { reflectionHandler, submit } = output as { reflectionHandler?: unknown; submit?: unknown };
  if (reflectionHandler !== undefined && typeof reflectionHandler !== 'function') {
    reject('the reflectionHandler of its output tool is not a function');
  }
  if (submit !== undefined && reflectionHandler === undefined) {
    reject('it has a submit tool but no reflectionHandler. Add a reflectionHandler or remove submit');
  }
  if (submit !== undefined && (typeof submit !== 'object' || submit === null)) {
    reject('its submit is not an object. Give { name, description }, or leave it out for the default');
  }
  checkValidation(validation, reject);
  if (!Array.isArray(helpers)) reject('its tools.helpers is not an array');
  for (const [index, helper] of helpers.entries()) checkHelper(helper as HelperTool, index, reject);

  for (const part in PARTS) {
    const known = { names: PARTS[part as Part], code: 'invalid-agent' } as const;
    checkOptions(`"${part}" of agent "${name}"`, definition[part as Part] ?? {}, known);
  }

  const submitTool = submitName(definition as unknown as AnyAgent);
  const names = [output.name, ...(submitTool === undefined ? [] : [submitTool]), ...helpers.map(helperName)];
  const twice = names.find((toolName, index) => names.indexOf(toolName) !== index);
  if (twice !== undefined) {
    const role = twice === output.name ? 'output' : twice === submitTool ? 'submit' : undefined;
    reject(`two of its tools are named "${twice}"${role ? `, the name of its ${role} tool` : ''}. Rename one`);
  }
  // Creating the tools throws for an invalid tool or schema.
  agentTools(definition as unknown as AnyAgent, { input: undefined, attempt: () => 1 });
}

function checkValidation(
  validation: AgentDefinition<never, never>['validation'],
  reject: (what: string) => never,
): void {
  const { outputSchema, customValidators = [], maxAttempts, maxIterationsPerAttempt = 1 } = validation ?? {};
  if (outputSchema === null || !['object', 'function'].includes(typeof outputSchema)) {
    reject('it has no validation.outputSchema. Give a schema, such as z.object({ … })');
  }
  for (const [name, count] of Object.entries({ maxAttempts, maxIterationsPerAttempt })) {
    if (!Number.isSafeInteger(count) || count! < 1) {
      reject(`validation.${name} is ${String(count)}. Give a whole number of at least 1`);
    }
  }
  for (const name of ['textOnly', 'earlySubmit'] as const) {
    const value = validation[name] ?? 'fail';
    if (value !== 'fail' && value !== 'feedback')
      reject(`validation.${name} is "${value as string}"; use "fail" or "feedback"`);
  }
  if (!Array.isArray(customValidators)) reject('its validation.customValidators is not an array');
  const names = customValidators.map((validator) => validator?.name);
  for (const [index, name] of names.entries()) {
    if (typeof name !== 'string' || name === '') reject(`custom validator ${index + 1} has no name`);
    if (typeof customValidators[index]!.validate !== 'function')
      reject(`the validator "${name}" has no validate function`);
    if (names.indexOf(name) !== index) reject(`two of its validators are named "${name}". Rename one`);
  }
}

function checkHelper(helper: HelperTool, index: number, reject: (what: string) => never): void {
  if (typeof helper !== 'object' || helper === null) reject(`helper ${index + 1} is not a tool`);
  if (!('handler' in helper) && !('definition' in helper)) {
    if (typeof (helper as { execute?: unknown }).execute !== 'function') {
      reject(
        `its helper "${helperName(helper)}" cannot be executed. Give { definition, handler }, or a tool() with execute`,
      );
    }
    return;
  }
  const name = helper.definition?.name;
  if (typeof helper.handler !== 'function') reject(`its helper "${name}" has no handler. Give { definition, handler }`);
  if (helper.definition === undefined) reject(`helper ${index + 1} has no definition. Give { definition, handler }`);
  if (helper.cache && helper.definition.effect !== 'pure') {
    reject(
      `its helper "${name}" is cached but not pure. Set effect: 'pure' if running it changes nothing, or remove cache`,
    );
  }
}

function helperName(helper: unknown): string {
  const { definition, name } = helper as { definition?: { name: string }; name: string };
  return definition?.name ?? name;
}
