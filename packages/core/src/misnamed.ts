import { TreadleError, type TreadleErrorCode } from './errors.ts';

/** Names that other libraries have for an option, with the name that it has here. */
type Names = Readonly<Record<string, string>>;

const SETTINGS: Names = {
  temperature: 'settings.temperature',
  maxTokens: 'settings.maxOutputTokens',
  maxOutputTokens: 'settings.maxOutputTokens',
  abortSignal: 'signal',
};

export const RUN_NAMES: Names = {
  ...SETTINGS,
  prompt: 'input',
  messages: 'input',
  system: 'instructions',
  systemPrompt: 'instructions',
  maxSteps: 'maxTurns',
  maxIterations: 'maxTurns',
  stopWhen: 'maxTurns',
  schema: 'output',
  outputSchema: 'output',
  outputType: 'output',
  responseFormat: 'output',
  onStepFinish: 'onTurnStart',
  onChunk: 'onItem',
  activeTools: 'allowedTools',
  prepareStep: 'prepareTurn',
};

export const TOOL_NAMES: Names = {
  inputSchema: 'input',
  schema: 'input',
  outputSchema: 'output',
  handler: 'execute',
  func: 'execute',
  invoke: 'execute',
  run: 'execute',
};

export const EXECUTION_NAMES: Names = { ...SETTINGS, prompt: 'input', messages: 'input' };

export const AGENT_NAMES: Names = {
  instructions: 'prompts.system',
  system: 'prompts.system',
  prompt: 'prompts.user',
  output: 'tools.output',
  schema: 'validation.outputSchema',
  outputSchema: 'validation.outputSchema',
  outputType: 'validation.outputSchema',
  maxAttempts: 'validation.maxAttempts',
  maxSteps: 'validation.maxIterationsPerAttempt',
};

/** Throws if an option has the name that another library gives it: it would be ignored otherwise. */
export function rejectMisnamed(what: string, options: object, names: Names, code: TreadleErrorCode): void {
  for (const name in options) {
    if (!Object.hasOwn(names, name) || options[name as never] === undefined) continue;
    throw new TreadleError(code, `${what} has no option "${name}". Use "${names[name]}".`);
  }
}
