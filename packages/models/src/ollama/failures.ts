import type { ModelError } from '@treadle/core';
import { failureOfBody, failureOfFrame } from '../http/provider-failures.ts';

/** Errors have the shape `{"error":"words"}`, one of those that the Chat Completions API's hosts use too. */
export function failureOfOllama(model: string, status: number, text: string): ModelError {
  const error = failureOfBody(status, text);
  const advice = adviceFor(model, error);
  return advice === undefined ? error : { ...error, message: `${error.message} ${advice}` };
}

/** The server says what is wrong but not what to change. That a model takes no tools is told for every protocol alike. */
function adviceFor(model: string, { status, message }: ModelError): string | undefined {
  if (/does not support thinking|think value/.test(message)) {
    return `The model "${model}" cannot be asked to think this way: leave out settings.reasoning and "think".`;
  }
  if (status === 404 && /not found/.test(message)) return `Run "ollama pull ${model}", or check the model's name.`;
  return undefined;
}

/** An error inside an answer that began well: no more than words, and what would have been a status 500. */
export function failureOfLine(error: unknown): ModelError {
  const failure = failureOfFrame({ error });
  return failure.code === 'protocol' ? { ...failure, code: 'overloaded' } : failure;
}
