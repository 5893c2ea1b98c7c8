export { openaiResponses, type OpenAiResponsesOptions } from './openai-responses.ts';
