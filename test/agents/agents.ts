import { defineAgent, textOf, type Agent, type AgentDefinition, type Message, type Model } from '@treadle/core';
import { z } from 'zod';

/** For agents whose model is set by `run`. */
export const unusedModel: Model = { id: 'unused', reply: () => Promise.reject(new Error('unexpected model call')) };

export const total = z.object({ total: z.number() });
export type Total = z.infer<typeof total>;

type Definition<Run, Attempt, Final> = AgentDefinition<string, Total, Run, Attempt, Final>;

type Changes<Run, Attempt, Final> = Partial<Omit<Definition<Run, Attempt, Final>, 'tools' | 'validation'>> & {
  readonly helpers?: Definition<Run, Attempt, Final>['tools']['helpers'];
  readonly validation?: Partial<Definition<Run, Attempt, Final>['validation']>;
};

/** An agent without reflection that adds numbers up, with two attempts. */
export function summing<Run = unknown, Attempt = unknown, Final = unknown>({
  helpers,
  validation,
  ...changes
}: Changes<Run, Attempt, Final> = {}): Agent<string, Total, Run, Attempt, Final> {
  return defineAgent<string, Total, Run, Attempt, Final>({
    name: 'summing',
    description: 'Adds numbers up',
    model: unusedModel,
    prompts: { system: 'You add up.', user: (input) => `Add up ${input}` },
    tools: { ...(helpers && { helpers }), output: { name: 'answer', description: 'Gives the total' } },
    validation: { outputSchema: total, maxAttempts: 2, ...validation },
    ...changes,
  });
}

/** The same agent with reflection. */
export function reflecting<Run = unknown, Attempt = unknown, Final = unknown>({
  helpers,
  validation,
  ...changes
}: Changes<Run, Attempt, Final> = {}): Agent<string, Total, Run, Attempt, Final> {
  return defineAgent<string, Total, Run, Attempt, Final>({
    name: 'reflecting',
    description: 'Adds numbers up and looks again',
    model: unusedModel,
    prompts: { user: (input) => `Add up ${input}` },
    tools: {
      ...(helpers && { helpers }),
      output: {
        name: 'answer',
        description: 'Gives the total',
        reflectionHandler: ({ total }) => `The total would be ${total}.`,
      },
    },
    validation: { outputSchema: total, maxAttempts: 2, ...validation },
    ...changes,
  });
}

/** A validator for a rule that the schema does not have. */
export const even = {
  name: 'even',
  validate: ({ total }: Total) => (total % 2 === 0 ? undefined : `${total} is odd`),
};

export const look = {
  definition: {
    name: 'look',
    description: 'Looks something up',
    input_schema: { type: 'object', properties: { at: { type: 'string' } }, required: ['at'] },
  },
  handler: (input: unknown) => `seen ${(input as { at: string }).at}`,
};

export const broken = {
  definition: { name: 'broken', description: 'Never works' },
  handler: (): never => {
    throw new Error('it is broken');
  },
};

/** The tool results of each message as `name: text`, with `!` after the name of an error. */
export function resultsIn(messages: readonly Message[]): readonly (readonly string[])[] {
  return messages.flatMap((message) =>
    message.role === 'tool'
      ? [message.content.map(({ name, content, isError }) => `${name}${isError ? '!' : ''}: ${textOf(content)}`)]
      : [],
  );
}

export function rolesIn(messages: readonly Message[]): readonly string[] {
  return messages.map(({ role }) => role);
}
