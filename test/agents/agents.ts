import { defineAgent, textOf, type Agent, type AgentDefinition, type Message, type Model } from '@treadle/core';
import { z } from 'zod';

/** Where `run` brings the model. */
export const nobody: Model = { id: 'nobody', reply: () => Promise.reject(new Error('nobody is asked')) };

export const total = z.object({ total: z.number() });
export type Total = z.infer<typeof total>;

type Definition<Run, Attempt, Final> = AgentDefinition<string, Total, Run, Attempt, Final>;

type Changes<Run, Attempt, Final> = Partial<Omit<Definition<Run, Attempt, Final>, 'tools' | 'validation'>> & {
  readonly helpers?: Definition<Run, Attempt, Final>['tools']['helpers'];
  readonly validation?: Partial<Definition<Run, Attempt, Final>['validation']>;
};

/** Adds numbers up: without reflection, two attempts. */
export function summing<Run = unknown, Attempt = unknown, Final = unknown>({
  helpers,
  validation,
  ...changes
}: Changes<Run, Attempt, Final> = {}): Agent<string, Total, Run, Attempt, Final> {
  return defineAgent<string, Total, Run, Attempt, Final>({
    name: 'summing',
    description: 'Adds numbers up',
    model: nobody,
    prompts: { system: 'You add up.', user: (input) => `Add up ${input}` },
    tools: { ...(helpers && { helpers }), output: { name: 'answer', description: 'Gives the total' } },
    validation: { outputSchema: total, maxAttempts: 2, ...validation },
    ...changes,
  });
}

/** The same with reflection. */
export function reflecting<Run = unknown, Attempt = unknown, Final = unknown>({
  helpers,
  validation,
  ...changes
}: Changes<Run, Attempt, Final> = {}): Agent<string, Total, Run, Attempt, Final> {
  return defineAgent<string, Total, Run, Attempt, Final>({
    name: 'reflecting',
    description: 'Adds numbers up and looks again',
    model: nobody,
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

/** A rule that the schema does not know. */
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

/** The results that the model got, message by message, as `name: text`, with `!` for an error. */
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
