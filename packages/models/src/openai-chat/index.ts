export { openaiChat, type OpenAiChatOptions } from './openai-chat.ts';
