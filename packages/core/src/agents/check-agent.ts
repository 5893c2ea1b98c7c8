import { TreadleError } from '../errors.ts';
import type { AgentDefinition, HelperTool } from './define.ts';
import { agentTools, submitName, type AnyAgent } from './tools.ts';

/** Throws for a definition that could never work, and says what to do. */
export function checkAgent(definition: AgentDefinition<never, never>): void {
  const { name, model, prompts, tools, validation } = definition;
  if (typeof name !== 'string' || name === '') throw new TreadleError('invalid-agent', 'The agent has no name.');
  const wrong = (what: string): never => {
    throw new TreadleError('invalid-agent', `Agent "${name}": ${what}.`);
  };
  if (typeof model?.reply !== 'function') wrong('it has no model. Give one, such as openaiChat({ model })');
  if (prompts?.user === null || !['string', 'object', 'function'].includes(typeof prompts?.user))
    wrong('it has no prompts.user to begin with');
  if (!['function', 'undefined'].includes(typeof prompts.error)) wrong('its prompts.error is no function');
  const { output, helpers = [] } = tools ?? {};
  if (typeof output?.name !== 'string') wrong('it has no tools.output. Give the tool by which the model answers');
  const { reflectionHandler, submit } = output as { reflectionHandler?: unknown; submit?: unknown };
  if (reflectionHandler !== undefined && typeof reflectionHandler !== 'function') {
    wrong('the reflectionHandler of its output tool is no function');
  }
  if (submit !== undefined && reflectionHandler === undefined) {
    wrong('it has a submit tool but no reflectionHandler. Add a reflectionHandler or remove submit');
  }
  if (submit !== undefined && (typeof submit !== 'object' || submit === null)) {
    wrong('with a reflectionHandler there is always a submit tool. Give its name and description, or leave it out');
  }
  checkValidation(validation, wrong);
  if (!Array.isArray(helpers)) wrong('its tools.helpers is no list');
  for (const [index, helper] of helpers.entries()) checkHelper(helper as HelperTool, index, wrong);

  const submitted = submitName(definition as unknown as AnyAgent);
  const own = [output.name, ...(submitted === undefined ? [] : [submitted])];
  const seen = new Set<string>();
  for (const taken of [...own, ...helpers.map(nameOf)]) {
    if (seen.has(taken)) {
      const role = own.includes(taken) ? `, the name of its ${taken === output.name ? 'output' : 'submit'} tool` : '';
      wrong(`two of its tools are named "${taken}"${role}. Rename one`);
    }
    seen.add(taken);
  }
  // Whatever is wrong with a single tool or a schema is told by making them.
  agentTools(definition as unknown as AnyAgent, { input: undefined, attempt: () => 1 });
}

function checkValidation(
  validation: AgentDefinition<never, never>['validation'],
  wrong: (what: string) => never,
): void {
  const { outputSchema, customValidators = [], maxAttempts, maxIterationsPerAttempt = 1 } = validation ?? {};
  if (outputSchema === null || !['object', 'function'].includes(typeof outputSchema)) {
    wrong('it has no validation.outputSchema. Give a schema, such as z.object({ … })');
  }
  for (const [name, count] of Object.entries({ maxAttempts, maxIterationsPerAttempt })) {
    if (!Number.isSafeInteger(count) || count! < 1) {
      wrong(`validation.${name} is ${String(count)}. Give a whole number of at least 1`);
    }
  }
  for (const name of ['textOnly', 'earlySubmit'] as const) {
    const value = validation[name] ?? 'fail';
    if (value !== 'fail' && value !== 'feedback')
      wrong(`validation.${name} is "${value as string}"; it can be "fail" or "feedback"`);
  }
  if (!Array.isArray(customValidators)) wrong('its validation.customValidators is no list');
  const names = customValidators.map((validator) => validator?.name);
  for (const [index, name] of names.entries()) {
    if (typeof name !== 'string' || name === '') wrong(`custom validator ${index + 1} has no name`);
    if (typeof customValidators[index]!.validate !== 'function')
      wrong(`the validator "${name}" has no validate function`);
    if (names.indexOf(name) !== index) wrong(`two of its validators are named "${name}". Rename one`);
  }
}

function checkHelper(helper: HelperTool, index: number, wrong: (what: string) => never): void {
  if (typeof helper !== 'object' || helper === null) wrong(`helper ${index + 1} is no tool`);
  if (!('handler' in helper) && !('definition' in helper)) {
    if (typeof (helper as { execute?: unknown }).execute !== 'function') {
      wrong(
        `its helper "${nameOf(helper)}" has nothing that executes it. Give { definition, handler }, or a tool() with execute`,
      );
    }
    return;
  }
  const name = helper.definition?.name;
  if (typeof helper.handler !== 'function') wrong(`its helper "${name}" has no handler. Give { definition, handler }`);
  if (helper.definition === undefined) wrong(`helper ${index + 1} has no definition. Give { definition, handler }`);
  if (helper.cache && helper.definition.effect !== 'pure') {
    wrong(
      `its helper "${name}" is cached but not pure. Set effect: 'pure' if running it changes nothing, or remove cache`,
    );
  }
}

function nameOf(helper: unknown): string {
  const { definition, name } = helper as { definition?: { name: string }; name: string };
  return definition?.name ?? name;
}
