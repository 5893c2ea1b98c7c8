import type { FormName } from '../script.ts';
import { anthropicForm } from './anthropic.ts';
import type { Form } from './form.ts';
import { googleForm } from './google.ts';
import { ollamaForm } from './ollama.ts';
import { openAiChat } from './openai-chat.ts';
import { openAiResponses } from './openai-responses.ts';

export const forms: Readonly<Record<FormName, Form>> = {
  'openai-chat': openAiChat,
  'openai-responses': openAiResponses,
  anthropic: anthropicForm,
  google: googleForm,
  ollama: ollamaForm,
};
